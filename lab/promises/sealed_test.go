package promises_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
	"github.com/idem-go/idem/seal"
)

// keysOf returns keys with these ids. The first is primary.
func keysOf(ids string) seal.Keys {
	keys := seal.Keys{Secrets: map[string][]byte{}}
	for _, id := range strings.Fields(ids) {
		keys.Secrets[id] = bytes.Repeat([]byte(id[:1]), seal.SecretSize)
	}
	keys.Primary, _, _ = strings.Cut(ids, " ")
	return keys
}

func sealed(ids string, options ...seal.Option) idem.Option {
	return idem.WithSealer(seal.New(keysOf(ids), options...))
}

// counted is a Sealer that counts its calls and fails on demand.
type counted struct {
	idem.Sealer
	seals, opens     atomic.Int64
	sealErr, openErr error
	id               string // used in place of the id of the key
}

func (c *counted) Seal(plain, bound []byte) (string, []byte, error) {
	c.seals.Add(1)
	if c.sealErr != nil {
		return "", nil, c.sealErr
	}
	id, text, err := c.Sealer.Seal(plain, bound)
	if c.id != "" {
		id = c.id
	}
	return id, text, err
}

func (c *counted) Open(keyID string, text, bound []byte) ([]byte, error) {
	c.opens.Add(1)
	if c.openErr != nil {
		return nil, c.openErr
	}
	return c.Sealer.Open(keyID, text, bound)
}

func countedSealer() *counted { return &counted{Sealer: seal.New(keysOf("a"))} }

func TestSealedResponse_WithoutASealerIsExplained(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	first, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"), sealed("a"))
	noError(t, err)
	for name, do := range outers {
		res, err := do(ctx, l, "k", neverCalled(t))
		var unreadable *idem.UnreadableError
		if !errors.As(err, &unreadable) || !errors.Is(err, idem.ErrUnreadable) || idem.Retryable(err) || res.Body != nil {
			t.Fatalf("%s: %+v, %v", name, res, err)
		}
		if unreadable.ExecutionID != first.ExecutionID || unreadable.SealedBy != "a" || !containsAll(err.Error(), "WithSealer", `"a"`, first.ExecutionID) {
			t.Errorf("%s: %#v: %v", name, unreadable, err)
		}
	}
	l.wantOnce("k")
	tx := l.begin(ctx)
	if _, err := idem.DoTx(ctx, tx, scope, "k", hashA, neverCalled(t)); !errors.Is(err, idem.ErrUnreadable) {
		t.Error(err)
	}
	wantIs(t, errors.Join(note(ctx, tx, "the caller's"), tx.Commit(ctx)), nil, "the caller's transaction is spoilt")
}

// A response in memory is not sealed. Neither the caller that executed nor a duplicate that waited
// in the same process has to open it.
func TestSealedResponse_IsSharedInMemoryWithoutOpeningIt(t *testing.T) {
	t.Parallel()
	l, s, w := newLedger(t), countedSealer(), newWatch()
	opts := []idem.Option{idem.WithSealer(s), idem.WithWait(limit), idem.WithObserver(w)}
	first := l.hold(t, "k", hashA, nil, opts...)
	const duplicates = 5
	results := make(chan idem.Result, duplicates)
	for range duplicates {
		go func() {
			res, err := idemDo(context.Background(), l.pool, scope, "k", hashA, neverCalled(t), opts...)
			wantIs(t, err, nil)
			results <- res
		}()
	}
	w.await(t, "waiting", duplicates)
	first.release()
	noError(t, first.wait(t))
	first.result.Replayed = true
	for range duplicates {
		wantSame(t, first.result, await(t, "a duplicate", results))
	}
	if seals, opens := s.seals.Load(), s.opens.Load(); seals != 1 || opens != 0 {
		t.Errorf("sealed %d times, opened %d times", seals, opens)
	}
	l.wantOnce("k")
}

// The outcome of a COMMIT can be found even if this process cannot open what it has sealed.
func TestSealedResponse_LostCommitIsResolvedWithoutOpeningIt(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{"completed": nil, "rejected": idem.Reject(ok)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := newProxied(t), countedSealer()
			s.openErr = errors.New("out of order")
			p.proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
			first, err := idemDo(t.Context(), p.through, scope, "k", hashA, p.ending("k", ok, end), idem.WithObserver(p.watch), idem.WithSealer(s), patient)
			if err != nil || first.Replayed || p.watch.count("resolved_committed") != 1 {
				t.Fatalf("%+v, %v, %v", first, err, p.watch.all())
			}
			s.openErr = nil
			wantReplay(t, name, first)(idemDo(t.Context(), p.through, scope, "k", hashA, neverCalled(t), idem.WithSealer(s)))
		})
	}
}

func TestSealer_FailureCommitsNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for name, s := range map[string]*counted{
		"an error":              {Sealer: seal.New(keysOf("a")), sealErr: errBusiness},
		"an id with a NUL":      {Sealer: seal.New(keysOf("a")), id: "a\x00"},
		"an id that is no text": {Sealer: seal.New(keysOf("a")), id: "\xff"},
		"an id that is long":    {Sealer: seal.New(keysOf("a")), id: strings.Repeat("x", 256)},
	} {
		for _, end := range []error{nil, idem.Reject(ok)} {
			_, err := idemDo(ctx, l.pool, scope, name, hashA, l.ending(name, ok, end), idem.WithSealer(s))
			if err == nil || errors.Is(err, errBusiness) != (name == "an error") {
				t.Errorf("%s: %v", name, err)
			}
			tx := must(l.pool.Begin(ctx))
			if _, err := idem.DoTx(ctx, tx, scope, name, hashA, l.ending(name, ok, end), idem.WithSealer(s)); err == nil {
				t.Errorf("%s: DoTx does not fail", name)
			}
			wantIs(t, tx.Commit(ctx), nil)
			l.wantNone(name)
		}
	}
	l.wantHealthy()
}

func TestSealedResponse_ErrorsHoldNothingOfIt(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	const key, private = "a key that is long enough", "hush hush"
	_, err := idemDo(ctx, l.pool, scope, key, hashA, answer(idem.Response{Header: header{private: {private}}, Body: []byte(private)}), sealed("a"))
	noError(t, err)
	hostile := fmt.Sprintf("update idem.records set sealed_by = '%s' || chr(10)", strings.Repeat("y", 1<<16))
	for _, spoil := range []string{"select", "update idem.records set status = 7", hostile} {
		execute(t, l.pool, spoil)
		for _, opts := range [][]idem.Option{nil, {sealed("b")}, {sealed("a")}} {
			_, err := idemDo(ctx, l.pool, scope, key, hashA, neverCalled(t), opts...)
			if err == nil && spoil == "select" && opts != nil {
				continue
			}
			text := fmt.Sprintf("%v %+v", err, err)
			if err == nil || strings.Contains(text, private) || strings.Contains(text, key) || strings.Contains(text, "\n") || len(text) > 1000 {
				t.Errorf("%.2000s", text)
			}
		}
	}
}

// Each statement is made by someone who can write to the table and has no key. It changes the
// record of the key "k". The table also has a record of "other", and one of the same key in another
// scope.
var tampering = map[string]struct {
	sql  string
	want error
}{
	"the body of another record": {`update idem.records r set body = o.body from idem.records o where r.key = 'k' and o.key = 'other'`, seal.ErrTampered},
	"all of another record's outcome": {`update idem.records r set execution_id = o.execution_id, state = o.state, status = o.status, body = o.body,
		sealed_by = o.sealed_by, completed_at = o.completed_at, created_at = o.created_at from idem.records o where r.key = 'k' and o.key = 'other'`, seal.ErrTampered},
	"another record, under this key": {`delete from idem.records where key = 'k'; update idem.records set key = 'k' where key = 'other'`, seal.ErrTampered},
	"a record of another scope": {`delete from idem.records where key = 'k' and scope <> 'elsewhere';
		update idem.records set scope = 'tenant-1/POST orders' where scope = 'elsewhere'`, seal.ErrTampered},
	"another execution id":     {`update idem.records set execution_id = '11111111-1111-4111-8111-111111111111' where key = 'k'`, seal.ErrTampered},
	"rejected, not completed":  {`update idem.records set state = 'failed' where key = 'k'`, seal.ErrTampered},
	"another status":           {`update idem.records set status = 200 where key = 'k'`, seal.ErrTampered},
	"no status":                {`update idem.records set status = null where key = 'k'`, seal.ErrTampered},
	"cut short":                {`update idem.records set body = substr(body, 1, length(body) - 1) where key = 'k'`, seal.ErrTampered},
	"cut at the front":         {`update idem.records set body = substr(body, 2) where key = 'k'`, seal.ErrTampered},
	"longer":                   {`update idem.records set body = body || '\x00' where key = 'k'`, seal.ErrTampered},
	"a bit":                    {`update idem.records set body = set_bit(body, 300, 1 - get_bit(body, 300)) where key = 'k'`, seal.ErrTampered},
	"empty":                    {`update idem.records set body = '' where key = 'k'`, seal.ErrTampered},
	"gone":                     {`update idem.records set body = null where key = 'k'`, seal.ErrTampered},
	"a header beside it":       {`update idem.records set header = '{"Location": ["/evil"]}' where key = 'k'`, seal.ErrTampered},
	"an empty header":          {`update idem.records set header = '{}' where key = 'k'`, seal.ErrTampered},
	"a header that is none":    {`update idem.records set header = '[4929123456789012]' where key = 'k'`, seal.ErrTampered},
	"plain text in its place":  {`update idem.records set body = 'plain' where key = 'k'`, seal.ErrTampered},
	"another key that exists":  {`update idem.records set sealed_by = 'b' where key = 'k'`, seal.ErrTampered},
	"another key":              {`update idem.records set sealed_by = 'c' where key = 'k'`, seal.ErrUnknownKey},
	"the mark taken away":      {`update idem.records set sealed_by = null where key = 'k'`, seal.ErrPlain},
	"the mark made empty":      {`update idem.records set sealed_by = '' where key = 'k'`, seal.ErrPlain},
	"plain, as of an old call": {`update idem.records set sealed_by = null, header = '{"A": ["b"]}', body = 'plain' where key = 'k'`, seal.ErrPlain},
}

func TestSealedResponse_TamperingIsAnErrorThatSaysHow(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for name, test := range tampering {
		execute(t, l.pool, "truncate idem.records")
		for _, of := range []struct{ scope, key string }{{scope, "k"}, {scope, "other"}, {"elsewhere", "k"}} {
			noError(t, errOf(idemDo(ctx, l.pool, of.scope, of.key, hashA, l.charge("k"), sealed("a"))))
		}
		execute(t, l.pool, test.sql)
		wantSealError(t, l, name, test.want, sealed("a b"))
		if test.want != seal.ErrPlain {
			wantSealError(t, l, name, test.want, sealed("a b", seal.AcceptPlain()))
		} else if name != "plain, as of an old call" { // an old plain record is accepted
			wantSealError(t, l, name, seal.ErrTampered, sealed("a b", seal.AcceptPlain()))
		}
	}
	// A client must not get the response to another request because the record was changed to
	// contain the hash of its own request.
	execute(t, l.pool, "truncate idem.records")
	noError(t, errOf(idemDo(ctx, l.pool, scope, "k", hashB, l.charge("k"), sealed("a b"))))
	execute(t, l.pool, "update idem.records set hash = $1", hashA[:])
	wantSealError(t, l, "another request", seal.ErrTampered, sealed("a b"))
}

// wantSealError fails the test unless every way to replay "k" returns this error and no other error
// of package seal.
func wantSealError(t *testing.T, l *ledger, name string, want error, opts ...idem.Option) {
	t.Helper()
	for how, replay := range map[string]func() (idem.Result, error){
		"Do": func() (idem.Result, error) { return idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), opts...) },
		"likely replay": func() (idem.Result, error) {
			return idemDo(ctx, l.pool, scope, "k", hashA, neverCalled(t), append(opts, idem.WithReplayLikely())...)
		},
		"DoTx": func() (idem.Result, error) { return l.undone("k", hashA, neverCalled(t), opts...) },
	} {
		res, err := replay()
		if !errors.Is(err, idem.ErrUnreadable) || res.Body != nil || res.Header != nil || res.ExecutionID != "" {
			t.Errorf("%s, %s: %+v, %v", name, how, res, err)
		}
		for _, known := range []error{seal.ErrUnknownKey, seal.ErrTampered, seal.ErrPlain} {
			if errors.Is(err, known) != (known == want) {
				t.Errorf("%s, %s: want %v, got %v", name, how, want, err)
			}
		}
	}
}

// versions are the versions of a service as in docs/sealing.md, from before it used sealing until
// after its first key rotation. Each of them runs at the same time as the one before.
var versions = []struct {
	name  string
	opts  []idem.Option
	sweep string // the records that must have expired before this version
}{
	{"without a Sealer", nil, "false"},
	{"reads both, writes plain", []idem.Option{sealed("a", seal.WritePlain())}, "false"},
	{"reads both, writes sealed", []idem.Option{sealed("a", seal.AcceptPlain())}, "false"},
	{"refuses plain", []idem.Option{sealed("a")}, "sealed_by is null"},
	{"has two keys", []idem.Option{sealed("a b")}, "false"},
	{"seals with the new key", []idem.Option{sealed("b a")}, "false"},
	{"has dropped the old key", []idem.Option{sealed("b")}, "sealed_by = 'a'"},
}

// A process of each version and one of the next run at the same time. Each of them can read what
// the other writes. idem treats each pool as a process.
func TestSealing_RolloutAndRotationLeaveNothingUnreadable(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	call := func(version int, key string, replayed bool) {
		t.Helper()
		pool := l.process(maxConns(1))
		defer pool.Close()
		res, err := idemDo(ctx, pool, scope, key, hashA, l.ending(key, idem.Response{Header: header{"Of": {key}}, Body: []byte(key)}, nil), versions[version].opts...)
		if err != nil || string(res.Body) != key || res.Header["Of"][0] != key || res.Replayed != replayed {
			t.Errorf("%s, asked for %q: %+v, %v", versions[version].name, key, res, err)
		}
	}
	for young := 1; young < len(versions); young++ {
		old := young - 1
		call(old, fmt.Sprint("before version ", young), false)
		// Before the deployment of a version that cannot read old records, the records that it cannot
		// read must have expired.
		execute(t, l.pool, "delete from idem.records where "+versions[young].sweep)
		var stored []string
		rows, _ := l.pool.Query(ctx, "select key from idem.records")
		stored, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || young != 1 && len(stored) == 0 {
			t.Fatal(stored, err)
		}
		for _, writer := range []int{old, young} {
			key := fmt.Sprintf("version %d beside %d", writer, young)
			call(writer, key, false)
			stored = append(stored, key)
		}
		for _, key := range stored {
			call(old, key, true)
			call(young, key, true)
		}
	}
}

// A skipped step, and a step that is taken too early, have distinct errors.
func TestSealing_StepTakenTooEarlyHasItsOwnError(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	options := map[string][]idem.Option{}
	for _, version := range versions {
		options[version.name] = version.opts
	}
	for _, test := range []struct {
		writer, reader string
		want           error
	}{
		{"reads both, writes sealed", "without a Sealer", idem.ErrUnreadable},
		{"without a Sealer", "refuses plain", seal.ErrPlain},
		{"reads both, writes plain", "refuses plain", seal.ErrPlain},
		{"seals with the new key", "refuses plain", seal.ErrUnknownKey},
		{"has two keys", "has dropped the old key", seal.ErrUnknownKey},
	} {
		key := test.writer + " / " + test.reader
		for _, reader := range []string{test.writer, test.reader, test.writer} {
			_, err := idemDo(context.Background(), l.pool, scope, key, hashA, l.charge(key), options[reader]...)
			if reader == test.reader && !errors.Is(err, test.want) || reader == test.writer && err != nil {
				t.Errorf("%s, reader %s: %v", key, reader, err)
			}
		}
		l.wantOnce(key)
	}
}

// The test searches the server's files: tables with their TOAST data, the write-ahead log, and the
// log of all statements with their parameters. It also finds a response that is stored plain, which
// shows that the search works.
func TestSealedResponse_IsInNoFileOfTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, "log_statement=all", "full_page_writes=on", "wal_compression=off")
	db, err := migrate.Open(server.DSN())
	noError(t, err)
	defer db.Close()
	noError(t, errOf(migrate.Up(ctx, db, migrations.FS)))
	config, err := pgxpool.ParseConfig(server.DSN())
	noError(t, err)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // puts the parameters into the server's log
	pool, err := pgxpool.NewWithConfig(ctx, config)
	noError(t, err)
	defer pool.Close()
	secrets := map[string]map[string][]byte{
		"sealed": writeSecrets(t, pool, sealed("a")), "plain": writeSecrets(t, pool),
	}
	execute(t, pool, "checkpoint")
	found := search(t, filepath.Dir(server.Log()), secrets)
	if len(found["sealed"]) > 0 {
		t.Errorf("what was sealed is found: %q", found["sealed"])
	}
	for _, folder := range []string{"base", "pg_wal", "postgres.log"} {
		for name := range secrets["plain"] {
			if want := name + " in " + folder; !slices.Contains(found["plain"], want) {
				t.Errorf("the search does not find plain text: no %s, only %q", want, found["plain"])
			}
		}
	}
}

// writeSecrets records responses of several kinds and sizes, replays them, and returns their
// contents. The contents are random letters, which compression does not hide from the search.
func writeSecrets(t *testing.T, pool *pgxpool.Pool, opts ...idem.Option) map[string][]byte {
	t.Helper()
	secrets := map[string][]byte{"header": letters(40), "body": letters(40), "long body": letters(100_000), "rejection": letters(40)}
	keyed := string(letters(8))
	for range 2 {
		for name, secret := range secrets {
			resp, end := idem.Response{Status: 201, Body: secret}, error(nil)
			switch name {
			case "header":
				resp = idem.Response{Header: header{"Location": {string(secret)}}}
			case "rejection":
				end = idem.Reject(resp)
			}
			fn := func(pgx.Tx) (idem.Response, error) { return resp, end }
			noError(t, errOf(idemDo(context.Background(), pool, scope, name+keyed, hashA, fn, opts...)))
		}
	}
	return secrets
}

// letters returns random characters that neither JSON nor SQL escapes.
func letters(n int) []byte {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + rand.IntN(26))
	}
	return text
}

// search returns which secrets it has found in the files below dir, and in which folders.
func search(t *testing.T, dir string, secrets map[string]map[string][]byte) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, dir+"/"), "data/"), "/")
		for kind, named := range secrets {
			for name, secret := range named {
				if where := name + " in " + folder; contains(text, secret) && !slices.Contains(found[kind], where) {
					found[kind] = append(found[kind], where)
				}
			}
		}
		return nil
	})
	noError(t, err)
	return found
}

// contains reports whether some part of secret is in text, as it is or in hexadecimal digits.
func contains(text, secret []byte) bool {
	for _, at := range []int{0, len(secret)/2 - 12, len(secret) - 24} {
		if piece := secret[at : at+24]; bytes.Contains(text, piece) || bytes.Contains(text, hex.AppendEncode(nil, piece)) {
			return true
		}
	}
	return false
}

// BenchmarkSealing measures what a Sealer adds to a call in the process, without the database. A
// first run seals the response, and a replay opens it. There is no header, because encoding and
// decoding one costs the same without a Sealer.
func BenchmarkSealing(b *testing.B) {
	s := seal.New(keysOf("a"))
	key := db.NewKey(scope, "7f3c9a52-0d1e-4f0b-9a52-7f3c9a520d1e", hashA, "11111111-2222-4333-8444-555555555555", idem.DefaultTTL)
	for _, size := range []int{200, 1 << 10, 64 << 10} {
		plain := db.Complete{Key: &key, State: db.Completed, Status: 201, Body: make([]byte, size)}
		c := plain
		if err := c.Seal(s); err != nil {
			b.Fatal(err)
		}
		loaded := db.Record{ExecutionID: key.ExecutionID, State: c.State, Status: c.Status, Body: c.Body, SealedBy: c.SealedBy, Closed: true}
		for name, run := range map[string]func() error{
			"first":  func() error { c := plain; return c.Seal(s) },
			"replay": func() error { r := loaded; return r.Open(&key, s) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := run(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
