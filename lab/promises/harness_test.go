package promises_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// ctx is the context of whatever no test cancels.
var ctx = context.Background()

// limit is the maximum time that a test waits for a signal.
const limit = waiting.Limit

// await waits until c is closed or has a value, and returns that value.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	return waiting.For(t, what, c)
}

// escape runs f in a separate goroutine.
var escape = waiting.Escape

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func errOf[T any](_ T, err error) error { return err }

// noError ends the test if err is not nil.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantIs fails the test unless target is in the chain of err, or both are nil.
func wantIs(t testing.TB, err, target error, about ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s err = %v, want %v", fmt.Sprint(about...), err, target)
	}
}

// wantSame fails the test if want and got differ.
func wantSame(t testing.TB, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// wantReplay returns a function that fails the test unless a call has replayed first.
func wantReplay(t testing.TB, what string, first idem.Result) func(idem.Result, error) {
	first.Replayed = true
	return func(again idem.Result, err error) {
		t.Helper()
		if diff := cmp.Diff(first, again); err != nil || diff != "" {
			t.Errorf("%s: replay: %v\n%s", what, err, diff)
		}
	}
}

// inBackground runs f in another goroutine. The channel gets its error.
func inBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// storm runs f n times at once. The function that it returns waits for the end of all runs.
func storm(n int, f func(i int)) (wait func()) {
	var runs sync.WaitGroup
	for i := range n {
		runs.Go(func() { f(i) })
	}
	return runs.Wait
}

// calling makes a call in another goroutine. The channel gets its error.
func calling(ctx context.Context, pool *pgxpool.Pool, key string, hash idem.Hash, fn func(pgx.Tx) (idem.Response, error), opts ...idem.Option) <-chan error {
	return inBackground(func() error { return errOf(idemDo(ctx, pool, scope, key, hash, fn, opts...)) })
}

// oneRun wraps a fn that must run only once. A second run fails the test and the call; the call
// could otherwise retry forever.
func oneRun[T any](t *testing.T, fn func(pgx.Tx) (T, error)) func(pgx.Tx) (T, error) {
	var runs atomic.Int32
	return func(tx pgx.Tx) (value T, err error) {
		if runs.Add(1) > 1 {
			t.Error("fn runs again")
			return value, errors.New("fn runs again")
		}
		return fn(tx)
	}
}

// held is a call whose fn blocks until release is called.
type held struct {
	begun   chan struct{}
	release func()
	done    <-chan error
	result  idem.Result
}

// hold makes a call for key whose fn blocks after its write. It returns when fn has blocked. end is
// the error that fn returns.
func (l *ledger) hold(t *testing.T, key string, hash idem.Hash, end error, opts ...idem.Option) *held {
	t.Helper()
	gate := make(chan struct{})
	h := &held{begun: make(chan struct{}), release: sync.OnceFunc(func() { close(gate) })}
	t.Cleanup(h.release)
	h.done = inBackground(func() (err error) {
		h.result, err = idemDo(context.Background(), l.pool, scope, key, hash, l.then(key, func(pgx.Tx) error {
			close(h.begun)
			<-gate
			return end
		}), opts...)
		return err
	})
	await(t, "fn to begin", h.begun)
	return h
}

func (h *held) wait(t *testing.T) error { t.Helper(); return await(t, "the held call to end", h.done) }

func maxConns(n int32) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.MaxConns = n }
}

// withParameter sets a parameter of each session of a pool.
func withParameter(name, value string) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams[name] = value }
}

// waitIdle waits until all connections of the pool are idle. A replay releases its connection in
// the background.
func waitIdle(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for pool.Stat().AcquiredConns() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections were not given back", pool.Stat().AcquiredConns())
		}
		time.Sleep(time.Millisecond)
	}
}

// lockRecords locks the table of records until unlock is called.
func lockRecords(t *testing.T, pool *pgxpool.Pool) (unlock func()) {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	noError(t, err)
	unlock = sync.OnceFunc(func() { tx.Rollback(context.Background()) })
	t.Cleanup(unlock)
	execute(t, tx, "lock table idem.records in access exclusive mode")
	return unlock
}

// awaitBlocked waits until n backends of the pool's database are blocked by another transaction.
func awaitBlocked(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	awaitTrue(t, pool, fmt.Sprintf(`select count(*) >= %d from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock'`, n))
}

// awaitTrue polls the server until sql returns true.
func awaitTrue(t testing.TB, pool *pgxpool.Pool, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for {
		var ok bool
		if err := pool.QueryRow(ctx, sql).Scan(&ok); err != nil {
			t.Fatalf("waiting for %s: %v", sql, err)
		}
		if ok {
			return
		}
	}
}

const scope = "tenant-1/POST orders"

// ledger is the effect of most tests: one row for each committed execution.
type ledger struct {
	t    testing.TB
	pool *pgxpool.Pool
	runs atomic.Int64 // runs of fn, committed or not
}

func newLedger(t testing.TB, configure ...func(*pgxpool.Config)) *ledger {
	t.Helper()
	return ledgerOn(t, pgtest.New(t, configure...))
}

func ledgerOn(t testing.TB, pool *pgxpool.Pool) *ledger {
	t.Helper()
	_, err := pool.Exec(context.Background(),
		`create table if not exists ledger (id bigint generated always as identity primary key, key text not null, execution_id uuid)`)
	noError(t, err)
	return &ledger{t: t, pool: pool}
}

// process returns another pool for the database. idem treats another pool as another process.
func (l *ledger) process(configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	l.t.Helper()
	return pgtest.Open(l.t, l.pool.Config().ConnString(), configure...)
}

// charge returns a fn that inserts one entry for key and responds with its id. So no two executions
// have the same response.
func (l *ledger) charge(key string) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		l.runs.Add(1)
		executionID, _ := idem.ExecutionID(tx)
		var id int64
		err := tx.QueryRow(context.Background(),
			`insert into ledger (key, execution_id) values ($1, $2) returning id`, key, executionID).Scan(&id)
		return idem.Response{
			Status: 201,
			Header: map[string][]string{"Location": {fmt.Sprintf("/entries/%d", id)}},
			Body:   fmt.Appendf(nil, `{"entry":%d}`, id),
		}, err
	}
}

// ending is charge, but the fn returns resp and end.
func (l *ledger) ending(key string, resp idem.Response, end error) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		_, err := l.charge(key)(tx)
		return resp, errors.Join(err, end)
	}
}

// then is charge, but the fn also calls do.
func (l *ledger) then(key string, do func(pgx.Tx) error) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		resp, err := l.charge(key)(tx)
		return resp, errors.Join(err, do(tx))
	}
}

// failing is charge, but the fn returns end itself.
func (l *ledger) failing(key string, end error) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		_, _ = l.charge(key)(tx)
		return ok, end
	}
}

// entries counts the committed entries of a key.
func (l *ledger) entries(key string) int {
	l.t.Helper()
	return l.count(`select count(*) from ledger where key = $1`, key)
}

// records counts the records of a key.
func (l *ledger) records(key string) int {
	l.t.Helper()
	return l.count(`select count(*) from idem.records where scope = $1 and key = $2`, scope, key)
}

func (l *ledger) count(sql string, args ...any) int {
	l.t.Helper()
	var n int
	noError(l.t, l.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// wantCount fails the test unless a query counts want.
func (l *ledger) wantCount(what string, want int, sql string, args ...any) {
	l.t.Helper()
	if n := l.count(sql, args...); n != want {
		l.t.Errorf("%s: %d, want %d", what, n, want)
	}
}

// wantStored fails the test unless the key has these numbers of entries and records.
func (l *ledger) wantStored(key string, entries, records int) {
	l.t.Helper()
	if e, r := l.entries(key), l.records(key); e != entries || r != records {
		l.t.Errorf("key %q: %d effects and %d records, want %d and %d", key, e, r, entries, records)
	}
}

// wantOnce fails the test unless the key has exactly one entry and one record, both of the same
// execution.
func (l *ledger) wantOnce(key string) {
	l.t.Helper()
	l.wantCount(key+": pairs", 1, `select count(*) from ledger l full join idem.records r using (key, execution_id) where key = $1`, key)
	l.wantStored(key, 1, 1)
}

// wantNone fails the test if the key has an entry or a record.
func (l *ledger) wantNone(key string) {
	l.t.Helper()
	l.wantStored(key, 0, 0)
}

// executed returns a function that fails the test unless a call has executed.
func executed(t testing.TB, about ...any) func(idem.Result, error) {
	return wantDone(t, false, about...)
}

// replayed returns a function that fails the test unless a call is a replay.
func replayed(t testing.TB, about ...any) func(idem.Result, error) {
	return wantDone(t, true, about...)
}

func wantDone(t testing.TB, replayed bool, about ...any) func(idem.Result, error) {
	return func(res idem.Result, err error) {
		t.Helper()
		if err != nil || res.Replayed != replayed {
			t.Errorf("%s %+v, %v, want Replayed to be %t", fmt.Sprint(about...), res, err, replayed)
		}
	}
}

var (
	hashA = idem.Hash{1}
	hashB = idem.Hash{2}
)

var errBusiness = errors.New("insufficient funds")

// ok is an arbitrary response.
var ok = idem.Response{Status: 201, Body: []byte("ok")}

// wantFree fails the test unless a call for key executes at once and leaves one entry and one
// record.
func (l *ledger) wantFree(key string) {
	l.t.Helper()
	before := l.runs.Load()
	res, err := idemDo(context.Background(), l.pool, scope, key, hashB, l.charge(key), idem.WithWait(0))
	if err != nil || res.Replayed || l.runs.Load() != before+1 {
		l.t.Errorf("key %q is not free: %+v, %v", key, res, err)
		return
	}
	l.wantOnce(key)
}

// wantFreeSoon fails the test unless a call for key executes after the server has noticed that the
// holder of the key is gone.
func (l *ledger) wantFreeSoon(pool *pgxpool.Pool, key string) {
	l.t.Helper()
	wantIs(l.t, errOf(idemDo(context.Background(), pool, scope, key, hashA, l.charge(key), idem.WithWait(limit))), nil, "key ", key)
	l.wantOnce(key)
}

// wantHealthy fails the test unless all connections are idle and the pool serves a call.
func (l *ledger) wantHealthy() {
	l.t.Helper()
	waitIdle(l.t, l.pool)
	l.wantFree(fmt.Sprintf("healthy %d", l.runs.Load()))
	waitIdle(l.t, l.pool)
}

// wantRefused fails the test unless a call returns an error that is final, commits nothing, and keeps
// the connection.
func (l *ledger) wantRefused(key string, want error, fn func(pgx.Tx) (idem.Response, error)) {
	l.t.Helper()
	made := l.pool.Stat().NewConnsCount()
	res, err := idemDo(context.Background(), l.pool, scope, key, hashA, fn)
	if diff := cmp.Diff(idem.Result{}, res); !errors.Is(err, want) || idem.Retryable(err) || diff != "" {
		l.t.Errorf("%s: err = %v, want %v\n%s", key, err, want, diff)
	}
	l.wantNone(key)
	l.wantSameConnections(made)
	l.wantFree(key)
}

// wantSameConnections fails the test if the pool has opened more than n connections.
func (l *ledger) wantSameConnections(n int64) {
	l.t.Helper()
	if made := l.pool.Stat().NewConnsCount(); made != n {
		l.t.Errorf("the pool made %d connections, want %d: a sound one was thrown away", made, n)
	}
}

// expire makes the record of key expired.
func (l *ledger) expire(key string) {
	l.t.Helper()
	tag, err := l.pool.Exec(context.Background(),
		"update idem.records set expires_at = clock_timestamp() where scope = $1 and key = $2", scope, key)
	if err != nil || tag.RowsAffected() != 1 {
		l.t.Fatalf("expire %q: %v, %v", key, tag, err)
	}
}

// charged makes a call for key that must execute.
func (l *ledger) charged(ctx context.Context, key string) idem.Result {
	l.t.Helper()
	res, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key))
	if err != nil || res.Replayed {
		l.t.Fatalf("%q: %+v, %v", key, res, err)
	}
	return res
}

// note inserts an entry of the caller itself, outside of any execution.
func note(ctx context.Context, tx pgx.Tx, key string) error {
	_, err := tx.Exec(ctx, "insert into ledger (key) values ($1)", key)
	return err
}

// committed returns the keys of all committed entries in the order of their insertion.
func (l *ledger) committed() []string {
	l.t.Helper()
	rows, _ := l.pool.Query(context.Background(), "select key from ledger order by id")
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	noError(l.t, err)
	return keys
}

func (l *ledger) wantCommitted(want ...string) {
	l.t.Helper()
	if got := l.committed(); !slices.Equal(got, want) {
		l.t.Errorf("committed %q, want %q", got, want)
	}
}

// undone makes a call of DoTx in a transaction that it then rolls back.
func (l *ledger) undone(key string, hash idem.Hash, fn func(pgx.Tx) (idem.Response, error), opts ...idem.Option) (idem.Result, error) {
	l.t.Helper()
	tx := must(l.pool.Begin(context.Background()))
	defer tx.Rollback(context.Background())
	return idem.DoTx(context.Background(), tx, scope, key, hash, fn, opts...)
}

// begin begins a transaction. At the end of the test it is rolled back if it is still open.
func (l *ledger) begin(ctx context.Context) pgx.Tx {
	l.t.Helper()
	tx, err := l.pool.Begin(ctx)
	noError(l.t, err)
	l.t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

var internals = bridge.Get[idem.Option, idem.Result]()

// withLimits shortens limits that have no option.
func withLimits(acquire, commit, resolve time.Duration) idem.Option {
	return internals.WithLimits(acquire, commit, resolve)
}

// withLock makes a call take the advisory lock that lock returns, or none if lock returns nil.
func withLock(lock func(scope, key string) *int64) idem.Option { return internals.WithLock(lock) }

// watch is an observer that records everything and that a test can wait on.
type watch struct {
	mu     sync.Mutex
	seen   []string // events and outcomes, in order, without stages
	change chan struct{}

	starts  []idem.TraceStartData
	events  []idem.TraceEventData // without stages
	ends    []idem.TraceEndData
	stages  []string // all events and outcomes
	foreign int      // events whose context is not the one that TraceStart returned
}

func newWatch() *watch { return &watch{change: make(chan struct{})} }

func (w *watch) TraceStart(ctx context.Context, data idem.TraceStartData) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.starts = append(w.starts, data)
	return context.WithValue(ctx, w, true)
}

func (w *watch) TraceEvent(ctx context.Context, data idem.TraceEventData) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.add(ctx, string(data.Event)) {
		w.events = append(w.events, data)
	}
}

func (w *watch) TraceEnd(ctx context.Context, data idem.TraceEndData) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(ctx, string(data.Outcome))
	w.ends = append(w.ends, data)
}

// add records an event or an outcome. It returns false for a stage, which is an event of every call
// that executes.
func (w *watch) add(ctx context.Context, what string) bool {
	if ctx.Value(w) == nil {
		w.foreign++
	}
	w.stages = append(w.stages, what)
	if what == string(idem.EventExecuting) || what == string(idem.EventRecording) {
		return false
	}
	w.seen = append(w.seen, what)
	close(w.change)
	w.change = make(chan struct{})
	return true
}

func (w *watch) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *watch) count(what string) int {
	n := 0
	for _, s := range w.all() {
		if s == what {
			n++
		}
	}
	return n
}

// await waits until what was seen n times.
func (w *watch) await(t testing.TB, what string, n int) {
	t.Helper()
	deadline := time.After(limit)
	for {
		w.mu.Lock()
		change := w.change
		w.mu.Unlock()
		if w.count(what) >= n {
			return
		}
		select {
		case <-change:
		case <-deadline:
			t.Fatalf("saw %q %d times, want %d", what, w.count(what), n)
		}
	}
}

// idemDo is idem.Do. If IDEM_TEST_THROUGH is set, idemDo is the Do of package idemsql, on a *sql.DB
// over the pool of the test. Package idemsql runs the tests of this package in that way:
// TestDo_KeepsThePromisesOfPackageIdem.
var idemDo = idem.Do

func init() {
	open := map[string]func(*pgxpool.Pool) *sql.DB{
		"OpenDB": idemsql.OpenDB,
		"stdlib": func(pool *pgxpool.Pool) *sql.DB { return stdlib.OpenDBFromPool(pool) },
	}[os.Getenv("IDEM_TEST_THROUGH")]
	if open != nil {
		idemDo = throughDatabaseSQL(open)
	}
}

func throughDatabaseSQL(open func(*pgxpool.Pool) *sql.DB) func(context.Context, *pgxpool.Pool, string, string, idem.Hash, func(pgx.Tx) (idem.Response, error), ...idem.Option) (idem.Result, error) {
	var dbs sync.Map // by pool
	return func(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash, fn func(pgx.Tx) (idem.Response, error), opts ...idem.Option) (idem.Result, error) {
		var db *sql.DB
		if pool != nil {
			known, ok := dbs.Load(pool)
			if !ok {
				known, _ = dbs.LoadOrStore(pool, open(pool))
			}
			db = known.(*sql.DB)
		}
		var inner func(*sql.Tx) (idem.Response, error)
		if fn != nil {
			inner = func(tx *sql.Tx) (idem.Response, error) {
				own, err := idemsql.Tx(context.Background(), tx)
				if err != nil {
					return idem.Response{}, err
				}
				return fn(own)
			}
		}
		return idemsql.Do(ctx, db, scope, key, hash, inner, opts...)
	}
}

// dials records the connections that a pool has opened, including those for a CancelRequest.
type dials struct {
	mu    sync.Mutex
	conns []*dialed
}

// on makes a pool use d to open its connections.
func (d *dials) on(config *pgxpool.Config) {
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c := &dialed{}
		d.mu.Lock()
		d.conns = append(d.conns, c)
		d.mu.Unlock()
		var err error
		c.Conn, err = dial(ctx, network, addr)
		return c, err
	}
}

func (d *dials) all() []*dialed {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*dialed{}, d.conns...)
}

// cancels returns the secret keys of all CancelRequests that were sent on connections that are
// closed.
func (d *dials) cancels() (secrets [][]byte) {
	const code, head = 80877102, 12
	for _, c := range d.all() {
		c.mu.Lock()
		if c.closed && len(c.first) > head && binary.BigEndian.Uint32(c.first[4:8]) == code {
			secrets = append(secrets, c.first[head:])
		}
		c.mu.Unlock()
	}
	return secrets
}

// wantNoneFor fails the test if a CancelRequest with this secret key was sent. Other CancelRequests
// are allowed: a probe that takes too long is canceled.
func (d *dials) wantNoneFor(t *testing.T, secret []byte) {
	t.Helper()
	if slices.ContainsFunc(d.cancels(), func(sent []byte) bool { return bytes.Equal(sent, secret) }) {
		t.Error("a request to cancel had the secret of the session")
	}
}

// dialed is a connection that records its use.
type dialed struct {
	net.Conn
	mu     sync.Mutex
	first  []byte // the first bytes that were written
	closed bool
}

func (c *dialed) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.first == nil {
		c.first = bytes.Clone(b)
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *dialed) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return err
}
