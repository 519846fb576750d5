package promises_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// nowhere returns a pool on an address on which no program listens. Every use of the pool fails with a
// network error.
func nowhere(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), "postgres://stranger@127.0.0.1:1/none?sslmode=disable&connect_timeout=5")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// neverCalled returns a fn for a call that must be refused. It fails the test if it runs.
func neverCalled(t *testing.T) func(pgx.Tx) (idem.Response, error) {
	return func(pgx.Tx) (idem.Response, error) { t.Error("fn was called"); return ok, nil }
}

// refusedNames break a rule for keys and scopes. rule is the text of the error.
var refusedNames = []struct{ name, text, rule string }{
	{"empty", "", "empty"},
	{"NUL", "secret\x00key", "control character at byte 6"},
	{"NUL first", "\x00secret", "control character at byte 0"},
	{"invalid UTF-8", "secret\xffkey", "not valid UTF-8"},
	{"overlong", "secret\xc0\x80", "not valid UTF-8"},
	{"surrogate", "secret\xed\xa0\x80", "not valid UTF-8"},
	{"truncated rune", "secret\xe2\x82", "not valid UTF-8"},
	{"beyond Unicode", "secret\xf4\x90\x80\x80", "not valid UTF-8"},
	{"DEL", "secret\x7f", "control character at byte 6"},
	{"C1", "secret\u0080", "control character at byte 6"},
	{"last C1", "secret\u009f", "control character at byte 6"},
	{"next line", "é\u0085", "control character at byte 2"},
}

func init() {
	for c := range ' ' {
		refusedNames = append(refusedNames, struct{ name, text, rule string }{
			fmt.Sprintf("C0 %02x", c), "secret" + string(c), "control character at byte 6",
		})
	}
}

func TestNamesThatBreakARuleAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := nowhere(t)
	long := func(n int) string { return strings.Repeat("s", n) }
	type refused struct {
		name, scope, key, text, rule string
		want                         error
	}
	tests := []refused{
		{"key of 256 bytes", scope, long(256), long(256), "256 bytes, the limit is 255", idem.ErrInvalidKey},
		{"key of 128 runes", scope, strings.Repeat("é", 128), "é", "256 bytes, the limit is 255", idem.ErrInvalidKey},
		{"key of a megabyte", scope, long(1 << 20), long(256), "1048576 bytes", idem.ErrInvalidKey},
		{"scope of 513 bytes", long(513), "k", long(513), "513 bytes, the limit is 512", idem.ErrInvalidScope},
		{"long and invalid", scope, long(256) + "\x00\xff", long(256), "258 bytes", idem.ErrInvalidKey},
	}
	for _, n := range refusedNames {
		tests = append(tests,
			refused{"key: " + n.name, scope, n.text, "secret", n.rule, idem.ErrInvalidKey},
			refused{"scope: " + n.name, n.text, "k", "secret", n.rule, idem.ErrInvalidScope})
	}
	for _, test := range tests {
		w := newWatch()
		res, err := idemDo(ctx, pool, test.scope, test.key, hashA, neverCalled(t), idem.WithObserver(w))
		if !errors.Is(err, test.want) || errors.Is(err, idem.ErrInvalidKey) == errors.Is(err, idem.ErrInvalidScope) {
			t.Errorf("%s: err = %v, want %v alone", test.name, err, test.want)
			continue
		}
		if !strings.Contains(err.Error(), test.rule) {
			t.Errorf("%s: %q does not say %q", test.name, err, test.rule)
		}
		if strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %q holds the text itself", test.name, err)
		}
		if diff := cmp.Diff(idem.Result{}, res); diff != "" || idem.Retryable(err) {
			t.Errorf("%s: retryable, or a result: %s", test.name, diff)
		}
		if diff := cmp.Diff([]string{"failed"}, w.all()); diff != "" {
			t.Errorf("%s: the observer saw %s", test.name, diff)
		}
		if _, _, err := idem.DoJSON(ctx, pool, test.scope, test.key, hashA, func(pgx.Tx) (int, error) { t.Error("fn was called"); return 0, nil }); !errors.Is(err, test.want) {
			t.Errorf("%s: DoJSON: %v", test.name, err)
		}
	}
	if stat := pool.Stat(); stat.NewConnsCount() != 0 || stat.AcquireCount() != 0 || stat.CanceledAcquireCount() != 0 {
		t.Error("the pool was asked for a connection")
	}
}

func TestScopeAndKeyThatBothBreakARuleAreBothNamed(t *testing.T) {
	t.Parallel()
	_, err := idemDo(context.Background(), nowhere(t), "", "", hashA, neverCalled(t))
	if !errors.Is(err, idem.ErrInvalidKey) || !errors.Is(err, idem.ErrInvalidScope) {
		t.Errorf("err = %v", err)
	}
}

func TestMissingArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	if _, err := idemDo(ctx, nowhere(t), scope, "k", hashA, nil); err == nil || idem.Retryable(err) {
		t.Errorf("nil fn: %v", err)
	}
	if _, err := idemDo(ctx, nil, scope, "k", hashA, neverCalled(t)); err == nil || idem.Retryable(err) {
		t.Errorf("nil pool: %v", err)
	}
	if _, _, err := idem.DoJSON[int](ctx, nowhere(t), scope, "k", hashA, nil); err == nil || idem.Retryable(err) {
		t.Errorf("nil fn of DoJSON: %v", err)
	}
	if _, err := idem.DoTx(ctx, nil, scope, "k", hashA, neverCalled(t)); err == nil || idem.Retryable(err) {
		t.Errorf("nil tx: %v", err)
	}
}

// acceptedNames are distinct, and all are accepted unchanged.
var acceptedNames = []string{
	"k", "K", " k", "k ", "  k", "\u00a0k", "k\u200b", "\ufeffk", "0", "00", "null", "NULL", " ", "%", "_", "*", "\\", `\\`,
	"'", "''", `"`, ";", "--", "/*", "*/", "$1", "$$", "E'\\\\'", `\x00`, "%s%n", "{{.}}", "../..", "k/1", "k%2f1",
	`'; drop table idem.records; --`, `' or '1'='1`, "'||pg_sleep(10)||'", "k'); delete from idem.records; --", `\'; select 1`,
	"é", "e\u0301", "É", "а", "a", "а\u0430", "ﬁ", "fi", "ß", "ss", "İ", "i", "ı", "Å", "\u212b", "１", "1", "😀", "👨‍👩‍👧",
	"\U0010ffff", "\u2028", "\u202e", "\ufffd", "\ue000",
	strings.Repeat("k", 254), strings.Repeat("k", 255), strings.Repeat("é", 127), strings.Repeat("😀", 63) + "abc",
}

func TestNamesAreTakenVerbatimAndKeptApart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			l := newLedger(t, withMode(mode))
			long := strings.Repeat("s", 512)
			bodies := map[string]string{}
			for round := range 2 {
				for _, name := range acceptedNames {
					for as, names := range map[string][2]string{"key": {scope, name}, "scope": {name, "k"}, "long": {long[:512-len(name)] + name, name}} {
						res, err := idemDo(ctx, l.pool, names[0], names[1], hashA, l.charge(as+" "+name))
						if err != nil || res.Replayed != (round > 0) {
							t.Fatalf("round %d, %s %q: %+v, %v", round, as, name, res, err)
						}
						if round == 0 {
							bodies[as+name] = string(res.Body)
						} else if string(res.Body) != bodies[as+name] {
							t.Errorf("%s %q got the response of another: %s", as, name, res.Body)
						}
					}
				}
			}
			n := len(acceptedNames)
			if got := l.count("select count(*) from idem.records"); got != 3*n || l.count("select count(*) from ledger") != 3*n {
				t.Errorf("%d records for %d pairs of names", got, 3*n)
			}
			for _, name := range acceptedNames {
				if l.records(name) != 1 || l.count("select count(*) from idem.records where scope = $1 and key = 'k'", name) != 1 {
					t.Errorf("%q is not stored verbatim", name)
				}
			}
		})
	}
}

// An error must not contain a prefix that could be the whole key.
func TestErrorsShowAKeyAbridged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	keys := []string{
		"s", "secret", strings.Repeat("x", 15), strings.Repeat("x", 16), "secret-key-0123456789", strings.Repeat("é", 8),
		strings.Repeat("€", 6), strings.Repeat("😀", 4), strings.Repeat("😀", 5), "😀😀😀😀k", `"\"\"\"\"\"\"\"\"\"\"`,
	}
	for _, key := range keys {
		held := l.hold(t, key, hashA, nil)
		_, busy := idemDo(ctx, l.pool, scope, key, hashA, neverCalled(t), idem.WithWait(0))
		if !errors.Is(busy, idem.ErrInProgress) {
			t.Errorf("err = %v, want ErrInProgress", busy)
		}
		held.release()
		if err := held.wait(t); err != nil {
			t.Fatal(err)
		}
		_, mismatch := idemDo(ctx, l.pool, scope, key, hashB, neverCalled(t))
		if !errors.Is(mismatch, idem.ErrMismatch) {
			t.Errorf("err = %v, want ErrMismatch", mismatch)
		}
		if _, err := l.pool.Exec(ctx, "update idem.records set state = 'processing', completed_at = null where key = $1", key); err != nil {
			t.Fatal(err)
		}
		_, ended := idemDo(ctx, l.pool, scope, key, hashA, neverCalled(t))
		if !errors.Is(ended, idem.ErrTxEnded) {
			t.Errorf("err = %v, want ErrTxEnded", ended)
		}
		for _, err := range []error{busy, mismatch, ended} {
			wantAbridged(t, key, err)
		}
	}
}

// wantAbridged fails the test if the text of shown contains the whole key, or nearly all of it.
func wantAbridged(t *testing.T, key string, shown any) {
	t.Helper()
	text := fmt.Sprintf("%+v", shown)
	if len(key) >= 6 && strings.Contains(text, key) || len(key) < 6 && strings.Contains(text, fmt.Sprintf("%q", key)) {
		t.Errorf("%s holds the key %q", text, key)
	}
	if runes := []rune(key); len(runes) >= 5 && strings.Contains(text, string(runes[:len(runes)-1])) {
		t.Errorf("%s holds the key %q but for its last character", text, key)
	}
}

func TestMismatchRevealsNothingOfTheRecord(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	stored := idem.Response{Status: 987654321, Header: map[string][]string{"X-Secret": {"token"}}, Body: []byte("confidential")}
	first, err := idemDo(ctx, l.pool, scope, "a key of some length", hashA, func(pgx.Tx) (idem.Response, error) { return stored, nil })
	if err != nil {
		t.Fatal(err)
	}
	res, err := idemDo(ctx, l.pool, scope, "a key of some length", hashB, neverCalled(t))
	if diff := cmp.Diff(idem.Result{}, res); diff != "" || !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("%v\n%s", err, diff)
	}
	var mismatch *idem.MismatchError
	errors.As(err, &mismatch)
	for _, text := range []string{fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", mismatch)} {
		for _, secret := range []string{"987654321", "X-Secret", "token", "confidential", first.ExecutionID} {
			if strings.Contains(text, secret) {
				t.Errorf("%s reveals %q", text, secret)
			}
		}
	}
}
