package promises_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

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
	if err != nil {
		t.Fatal(err)
	}
	return &ledger{t: t, pool: pool}
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
	if err := l.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// wantOnce fails the test unless the key has exactly one entry and one record, both of the same
// execution.
func (l *ledger) wantOnce(key string) {
	l.t.Helper()
	if n := l.count(`select count(*) from ledger l full join idem.records r using (key, execution_id) where key = $1`, key); n != 1 {
		l.t.Errorf("key %q: %d effects and records that do not pair up to one", key, n)
	}
	if e, r := l.entries(key), l.records(key); e != 1 || r != 1 {
		l.t.Errorf("key %q: %d effects and %d records, want one of each", key, e, r)
	}
}

// wantNone fails the test if the key has an entry or a record.
func (l *ledger) wantNone(key string) {
	l.t.Helper()
	if e, r := l.entries(key), l.records(key); e != 0 || r != 0 {
		l.t.Errorf("key %q: %d effects and %d records, want none", key, e, r)
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

// wantHealthy fails the test unless all connections are idle and the pool serves a call.
func (l *ledger) wantHealthy() {
	l.t.Helper()
	waitIdle(l.t, l.pool)
	l.wantFree(fmt.Sprintf("healthy %d", l.runs.Load()))
	waitIdle(l.t, l.pool)
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
	if err != nil {
		l.t.Fatal(err)
	}
	return keys
}

func (l *ledger) wantCommitted(want ...string) {
	l.t.Helper()
	if got := l.committed(); !slices.Equal(got, want) {
		l.t.Errorf("committed %q, want %q", got, want)
	}
}

// begin begins a transaction. At the end of the test it is rolled back if it is still open.
func (l *ledger) begin(ctx context.Context) pgx.Tx {
	l.t.Helper()
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}
