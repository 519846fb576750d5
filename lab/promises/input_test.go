package promises_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/seal"
)

// nowhere returns a pool on an address on which no program listens. Every use of the pool fails
// with a network error.
func nowhere(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), "postgres://stranger@127.0.0.1:1/none?sslmode=disable&connect_timeout=5")
	noError(t, err)
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
	{"escape", "secret\x1b", "control character at byte 6"},
	{"invalid UTF-8", "secret\xffkey", "not valid UTF-8"},
	{"surrogate", "secret\xed\xa0\x80", "not valid UTF-8"},
	{"truncated rune", "secret\xe2\x82", "not valid UTF-8"},
	{"DEL", "secret\x7f", "control character at byte 6"},
	{"last C1", "secret\u009f", "control character at byte 6"},
	{"next line", "é\u0085", "control character at byte 2"},
}

func TestDo_RefusesInvalidNamesBeforeAnySQL(t *testing.T) {
	t.Parallel()
	pool := nowhere(t)
	long := func(n int) string { return strings.Repeat("s", n) }
	type refused struct {
		name, scope, key, text, rule string
		want                         error
	}
	tests := []refused{
		{"key of 256 bytes", scope, long(256), long(256), "256 bytes, the limit is 255", idem.ErrInvalidKey},
		{"key of 128 runes", scope, strings.Repeat("é", 128), "é", "256 bytes, the limit is 255", idem.ErrInvalidKey},
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
		if !strings.Contains(err.Error(), test.rule) || strings.Contains(err.Error(), test.text) || idem.Retryable(err) {
			t.Errorf("%s: %q does not contain %q, or contains the name itself", test.name, err, test.rule)
		}
		wantSame(t, idem.Result{}, res)
		wantSame(t, []string{"failed"}, w.all())
		_, doTx := idem.DoTx(ctx, unusable{}, test.scope, test.key, hashA, neverCalled(t))
		_, lookup := idem.Lookup(ctx, pool, test.scope, test.key)
		if !errors.Is(doTx, test.want) || !errors.Is(lookup, test.want) {
			t.Errorf("%s: DoTx: %v, Lookup: %v", test.name, doTx, lookup)
		}
	}
	if _, err := idemDo(ctx, pool, "", "", hashA, neverCalled(t)); !errors.Is(err, idem.ErrInvalidKey) || !errors.Is(err, idem.ErrInvalidScope) {
		t.Errorf("both: err = %v", err)
	}
	if stat := pool.Stat(); stat.NewConnsCount() != 0 || stat.AcquireCount() != 0 || stat.CanceledAcquireCount() != 0 {
		t.Error("the pool was asked for a connection")
	}
}

// The zero hash that HashJSON returns with an error would make all such requests equal.
func TestDo_RefusesNilArgumentsAndTheZeroHashBeforeAnySQL(t *testing.T) {
	t.Parallel()
	pool, fn := nowhere(t), neverCalled(t)
	zero, _ := idem.HashJSON([]byte("not JSON"))
	_, _, nilOfJSON := idem.DoJSON[int](ctx, pool, scope, "k", hashA, nil)
	for name, err := range map[string]error{
		"nil fn":                     errOf(idemDo(ctx, pool, scope, "k", hashA, nil)),
		"nil pool":                   errOf(idemDo(ctx, nil, scope, "k", hashA, fn)),
		"nil fn of DoJSON":           nilOfJSON,
		"nil tx":                     errOf(idem.DoTx(ctx, nil, scope, "k", hashA, fn)),
		"nil fn of DoTx":             errOf(idem.DoTx(ctx, unusable{}, scope, "k", hashA, nil)),
		"nil for Lookup":             errOf(idem.Lookup(ctx, nil, scope, "k")),
		"zero hash":                  errOf(idemDo(ctx, pool, scope, "k", zero, fn)),
		"zero hash of DoTx":          errOf(idem.DoTx(ctx, unusable{}, scope, "k", zero, fn)),
		"zero hash of an operation":  errOf(internals.Do(ctx, pool, scope, "k", zero, nil, nil)),
		"zero hash, operation in tx": errOf(internals.Start(ctx, unusable{}, scope, "k", zero, nil, nil)),
	} {
		isZero := errors.Is(err, idem.ErrInvalidHash) && idem.CauseOf(err) == idem.CauseInvalid
		if err == nil || idem.Retryable(err) || strings.HasPrefix(name, "zero") != isZero {
			t.Errorf("%s: %v", name, err)
		}
	}
	if pool.Stat().AcquireCount() != 0 {
		t.Error("the pool was asked for a connection")
	}
}

// acceptedNames are distinct, and all are accepted unchanged.
var acceptedNames = []string{
	"k", "K", " k", "k ", "\u00a0k", "k\u200b", "\ufeffk", "0", "00", "null", "%", "_", "\\", `\\`, "'", "''", `"`, "--", "$1", "$$",
	`\x00`, "%s%n", "../..", "k/1", "k%2f1", `'; drop table idem.records; --`, `\'; select 1`, "é", "e\u0301", "É", "а", "a", "ﬁ", "fi",
	"İ", "i", "Å", "\u212b", "１", "1", "😀", "👨‍👩‍👧", "\U0010ffff", "\u2028", "\ufffd",
	strings.Repeat("k", 254), strings.Repeat("k", 255), strings.Repeat("é", 127), strings.Repeat("😀", 63) + "abc",
}

func TestDo_TakesNamesVerbatimAndKeepsThemApart(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) {
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
		for _, name := range acceptedNames {
			if l.records(name) != 1 || l.count("select count(*) from idem.records where scope = $1 and key = 'k'", name) != 1 {
				t.Errorf("%q is not stored verbatim", name)
			}
		}
	})
}

// An error must not contain a prefix that could be the whole key.
func TestErrors_ShowAKeyAbridged(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	keys := []string{
		"s", "secret", strings.Repeat("x", 15), strings.Repeat("x", 16), "secret-key-0123456789", strings.Repeat("é", 8),
		strings.Repeat("😀", 4), strings.Repeat("😀", 5), "😀😀😀😀k", `"\"\"\"\"\"\"\"\"\"\"`,
	}
	for _, key := range keys {
		tx := l.begin(ctx)
		noError(t, errOf(idem.DoTx(ctx, tx, scope, key, hashA, answer(ok))))
		_, busy := idemDo(ctx, l.pool, scope, key, hashA, neverCalled(t), idem.WithWait(0))
		noError(t, tx.Commit(ctx))
		_, mismatch := idemDo(ctx, l.pool, scope, key, hashB, neverCalled(t))
		execute(t, l.pool, "update idem.records set state = 'processing', completed_at = null where key = $1", key)
		_, ended := idemDo(ctx, l.pool, scope, key, hashA, neverCalled(t))
		for err, want := range map[error]error{busy: idem.ErrInProgress, mismatch: idem.ErrMismatch, ended: idem.ErrTxEnded} {
			wantIs(t, err, want)
			wantAbridged(t, key, err)
		}
	}
}

// wantAbridged fails the test if the text of shown contains the whole key, or nearly all of it.
func wantAbridged(t *testing.T, key string, shown any) {
	t.Helper()
	text := fmt.Sprintf("%+v", shown)
	if len(key) >= 6 && strings.Contains(text, key) || len(key) < 6 && strings.Contains(text, fmt.Sprintf("%q", key)) {
		t.Errorf("%s contains the key %q", text, key)
	}
	if runes := []rune(key); len(runes) >= 5 && strings.Contains(text, string(runes[:len(runes)-1])) {
		t.Errorf("%s contains the key %q without its last character", text, key)
	}
}

// hashVector is a list of byte strings, or of documents that are equal under the same options.
type hashVector struct {
	Name    string   `json:"name"`
	Parts   []string `json:"parts,omitempty"`
	Docs    []string `json:"docs,omitempty"`
	Only    []string `json:"only,omitempty"`
	Without []string `json:"without,omitempty"`
	Hash    string   `json:"hash"`
}

func (v hashVector) options() []idem.HashOption {
	var opts []idem.HashOption
	if len(v.Only) > 0 {
		opts = append(opts, idem.Only(v.Only...))
	}
	return append(opts, idem.Without(v.Without...))
}

func (v hashVector) hashes(t *testing.T) []string {
	if v.Docs == nil {
		var parts [][]byte
		for _, part := range v.Parts {
			parts = append(parts, []byte(part))
		}
		return []string{idem.HashBytes(parts...).String()}
	}
	var hashes []string
	for _, doc := range v.Docs {
		hashes = append(hashes, hashJSON(t, doc, v.options()...).String())
	}
	return hashes
}

func hashJSON(t *testing.T, doc string, opts ...idem.HashOption) idem.Hash {
	t.Helper()
	hash, err := idem.HashJSON([]byte(doc), opts...)
	if err != nil {
		t.Fatalf("HashJSON(%.200q): %v", doc, err)
	}
	return hash
}

// Databases store hashes, so the hashes in the golden file must never change.
func TestHashes_AreFrozen(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("testdata/hashes.json")
	noError(t, err)
	var vectors []hashVector
	noError(t, json.Unmarshal(golden, &vectors))
	owner := map[string]string{}
	for _, v := range vectors {
		hashes := v.hashes(t)
		for j, hash := range hashes {
			if hash != v.Hash {
				t.Errorf("%s: hash %d is %s, want %s", v.Name, j, hash, v.Hash)
			}
		}
		if other, ok := owner[hashes[0]]; ok {
			t.Errorf("%s hashes like %s", v.Name, other)
		}
		owner[hashes[0]] = v.Name
	}
}

// unusable is a transaction whose methods must not be called.
type unusable struct{ pgx.Tx }

func TestHashJSON_RefusesInvalidPointersWhateverTheDocument(t *testing.T) {
	t.Parallel()
	only, without := idem.Only, idem.Without
	for _, tt := range []struct {
		opts []idem.HashOption
		want string
	}{
		{[]idem.HashOption{only()}, "Only selects nothing"},
		{[]idem.HashOption{only("/b", "a")}, `"a" does not begin with /`},
		{[]idem.HashOption{without("/~2")}, `"/~2" has a ~ that is not ~0 or ~1`},
		{[]idem.HashOption{only("/\xff")}, `"/\xff" is not valid UTF-8`},
		{[]idem.HashOption{only("/a"), without("/a")}, `Without "/a" leaves nothing of "/a"`},
		{[]idem.HashOption{without("/a"), only("/a/b/c", "/b")}, `Without "/a" leaves nothing of "/a/b/c"`},
	} {
		for _, doc := range []string{`{"a":1,"b":2}`, "["} {
			hash, err := idem.HashJSON([]byte(doc), tt.opts...)
			want := "idem: invalid JSON pointer: " + tt.want
			if !errors.Is(err, idem.ErrInvalidPointer) || err.Error() != want || hash != (idem.Hash{}) {
				t.Errorf("HashJSON(%q) = %v, %v; want the error %q", doc, hash, err, want)
			}
		}
	}
}

const century = 100 * 365 * 24 * time.Hour

func TestOptions_OutOfRangeAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	pool := nowhere(t)
	for _, test := range []struct {
		want string
		opts []idem.Option
	}{
		{"nil Option", []idem.Option{idem.WithTTL(time.Hour), nil}},
		{"WithTTL(0s)", []idem.Option{idem.WithTTL(0)}},
		{"WithTTL(999.999µs)", []idem.Option{idem.WithTTL(time.Millisecond - 1)}},
		{"WithTTL(876000h0m0.000000001s)", []idem.Option{idem.WithTTL(century + 1)}},
		{"WithTTL(", []idem.Option{idem.WithTTL(math.MinInt64)}},
		{"WithWait(-1ns)", []idem.Option{idem.WithWait(-1)}},
		{"WithRetries(-1)", []idem.Option{idem.WithRetries(-1)}},
		{"WithMaxResponse(-1)", []idem.Option{idem.WithMaxResponse(-1)}},
		{"WithMaxResponse(536870913)", []idem.Option{idem.WithMaxResponse(512<<20 + 1)}},
		{"WithName: a name has 1 to 64", []idem.Option{idem.WithName("")}},
		{"65 bytes", []idem.Option{idem.WithName(strings.Repeat("n", 65))}},
		{"WithName", []idem.Option{idem.WithName("place\norder")}},
		{"WithName", []idem.Option{idem.WithName("Bestellung für dich")}},
		{"read-only", []idem.Option{idem.WithTxOptions(pgx.TxOptions{AccessMode: pgx.ReadOnly})}},
		{"WithSealer", []idem.Option{idem.WithSealer(nil)}},
		{"WithSealer", []idem.Option{idem.WithSealer((*seal.Sealer)(nil))}},
		{"WithSealer", []idem.Option{idem.WithSealer(seal.New(seal.Keys{Primary: "a", Secrets: map[string][]byte{"a": []byte("short")}}))}},
		{"WithTTL(0s)", []idem.Option{idem.WithTTL(0), idem.WithTTL(time.Hour)}},     // a later valid option does not help
		{"WithTTL(0s)", []idem.Option{idem.WithTTL(0), idem.WithWait(-time.Second)}}, // the error names the first invalid option
	} {
		for name, err := range map[string]error{
			"Do":           errOf(idemDo(ctx, pool, scope, "k", hashA, neverCalled(t), test.opts...)),
			"DoTx":         errOf(idem.DoTx(ctx, nil, scope, "k", hashA, neverCalled(t), test.opts...)),
			"CheckOptions": idem.CheckOptions(test.opts...),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), "idem: ") || !strings.Contains(err.Error(), test.want) || idem.Retryable(err) {
				t.Errorf("%s: err = %v, want an error with %q", name, err, test.want)
			}
		}
	}
	valid := []idem.Option{idem.WithTTL(century), idem.WithWait(0), idem.WithRetries(0), idem.WithMaxResponse(0), idem.WithSealer(countedSealer())}
	wantIs(t, idem.CheckOptions(valid...), nil)
	if pool.Stat().AcquireCount() != 0 {
		t.Error("the pool was asked for a connection")
	}
}

func TestDoTx_RefusesOptionsWithoutAMeaning(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	tx := l.begin(ctx)
	for text, opts := range map[string][]idem.Option{
		"WithWait":         {idem.WithTTL(time.Hour), idem.WithWait(0)},
		"WithRetries":      {idem.WithRetries(0), idem.WithWait(time.Second)},
		"WithTxOptions":    {idem.WithTxOptions(pgx.TxOptions{})},
		"WithReplayLikely": {idem.WithReplayLikely()},
	} {
		_, err := idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t), opts...)
		if err == nil || !strings.Contains(err.Error(), text) || idem.Retryable(err) {
			t.Errorf("err = %v, want one that names %s", err, text)
		}
	}
	wantIs(t, errOf(idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"), idem.WithTTL(time.Hour), idem.WithMaxResponse(1000), idem.WithObserver(newWatch()), idem.WithName(`POST /orders ~`))), nil, "the others have a meaning")
}

// The record is kept for the TTL from its completion on, and is expired soon after.
func TestTTL_CountsExactlyFromTheRecording(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for ttl, opts := range map[time.Duration][]idem.Option{
		24 * time.Hour:                     nil, // the default
		time.Millisecond:                   {idem.WithTTL(time.Millisecond)},
		time.Second + time.Microsecond + 1: {idem.WithTTL(time.Second + time.Microsecond + 1)},
		time.Hour:                          {idem.WithTTL(time.Minute), idem.WithTTL(time.Hour)}, // the last option wins
		century:                            {idem.WithTTL(century)},
	} {
		for _, end := range []error{nil, idem.Reject(ok)} {
			key := fmt.Sprint(ttl, end)
			done, err := idemDo(ctx, l.pool, scope, key, hashA, l.ending(key, ok, end), opts...)
			noError(t, err)
			joined, err := l.undone("joined "+key, hashA, l.ending(key, ok, end), opts...)
			noError(t, err)
			for _, res := range []idem.Result{done, joined} {
				if lives, want := res.ExpiresAt.Sub(res.CompletedAt), ttl.Truncate(time.Microsecond); lives != want {
					t.Errorf("with a TTL of %v the record lives %v", ttl, lives)
				}
			}
		}
	}
}

func TestDo_TxOptionsApplyToTheTransactionOfFn(t *testing.T) {
	t.Parallel()
	inFewModes(t, func(t *testing.T, l *ledger, _ pgx.QueryExecMode) {
		for name, test := range map[string]struct {
			options               pgx.TxOptions
			isolation, deferrable string
		}{
			"default":      {pgx.TxOptions{}, "read committed", "off"},
			"serializable": {pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadWrite, DeferrableMode: pgx.Deferrable}, "serializable", "on"},
			"own BEGIN":    {pgx.TxOptions{BeginQuery: "start transaction isolation level repeatable read"}, "repeatable read", "off"},
			"own COMMIT":   {pgx.TxOptions{CommitQuery: "end transaction"}, "read committed", "off"},
		} {
			var isolation, deferrable string
			res, err := idemDo(ctx, l.pool, scope, name, hashA, func(tx pgx.Tx) (idem.Response, error) {
				err := tx.QueryRow(ctx, "select current_setting('transaction_isolation'), current_setting('transaction_deferrable')").Scan(&isolation, &deferrable)
				if err != nil {
					return idem.Response{}, err
				}
				return l.charge(name)(tx)
			}, idem.WithTxOptions(test.options))
			if err != nil || isolation != test.isolation || deferrable != test.deferrable {
				t.Errorf("%s: %s, deferrable %s, %v", name, isolation, deferrable, err)
			}
			l.wantOnce(name)
			wantReplay(t, name, res)(idemDo(ctx, l.pool, scope, name, hashA, neverCalled(t), idem.WithTxOptions(test.options)))
		}
	})
}

// Some read-only transactions are not recognized in advance. Postgres then refuses the write, and
// the error has a hint.
func TestDo_ReadOnlyTransactionIsExplained(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	tx := must(l.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly}))
	defer tx.Rollback(ctx)
	readOnly := func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "set transaction read only")
		return ok, err
	}
	for name, err := range map[string]error{
		"begun so": errOf(idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), idem.WithTxOptions(pgx.TxOptions{BeginQuery: "begin read only"}))),
		"by fn":    errOf(idemDo(ctx, l.pool, scope, "k", hashA, readOnly)),
		"joined":   errOf(idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t))),
	} {
		if err == nil || !strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), "25006") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	wantIs(t, tx.Commit(ctx), nil, "the caller's transaction")
	l.wantNone("k")
	l.wantFree("k")
}

// Databases store scopes, so these must never change.
func TestScope_IsReadableAndFrozen(t *testing.T) {
	t.Parallel()
	tests := []struct {
		parts []string
		want  string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"", ""}, "/"},
		{[]string{"tenant-1"}, "tenant-1"},
		{[]string{"tenant-1", "POST /orders"}, "tenant-1/POST %2Forders"},
		{[]string{"a", "b/c"}, "a/b%2Fc"},
		{[]string{"a/b", "c"}, "a%2Fb/c"},
		{[]string{"a/b/c"}, "a%2Fb%2Fc"},
		{[]string{"a%2Fb", "c"}, "a%252Fb/c"},
		{[]string{"100%", "größe", "~\\ \"?"}, "100%25/größe/~\\ \"?"},
	}
	for _, tt := range tests {
		if got := idem.Scope(tt.parts...); got != tt.want {
			t.Errorf("Scope(%q) = %q, want %q", tt.parts, got, tt.want)
		}
	}
}
