package idem_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/pgtest"
)

const scope = "tenant-1/POST orders"

// ledger is the effect in most tests: one row per execution that was committed.
type ledger struct {
	t    testing.TB
	pool *pgxpool.Pool
	runs atomic.Int64 // how often fn ran, committed or not
}

func newLedger(t testing.TB, configure ...func(*pgxpool.Config)) *ledger {
	t.Helper()
	return ledgerOn(t, pgtest.New(t, configure...))
}

func ledgerOn(t testing.TB, pool *pgxpool.Pool) *ledger {
	t.Helper()
	_, err := pool.Exec(context.Background(),
		`create table if not exists ledger (id bigint generated always as identity primary key, key text not null, operation_id uuid)`)
	if err != nil {
		t.Fatal(err)
	}
	return &ledger{t: t, pool: pool}
}

// charge returns a fn that makes one entry for key and answers with the entry's id, so that no two executions answer alike.
func (l *ledger) charge(key string) func(pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		l.runs.Add(1)
		operationID, _ := idem.OperationID(tx)
		var id int64
		err := tx.QueryRow(context.Background(),
			`insert into ledger (key, operation_id) values ($1, $2) returning id`, key, operationID).Scan(&id)
		return idem.Response{
			Status: 201,
			Header: map[string][]string{"Location": {fmt.Sprintf("/entries/%d", id)}},
			Body:   fmt.Appendf(nil, `{"entry":%d}`, id),
		}, err
	}
}

// entries counts the committed effects of a key.
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

// wantOnce fails the test unless the key has exactly one effect and one record, of the same operation.
func (l *ledger) wantOnce(key string) {
	l.t.Helper()
	if n := l.count(`select count(*) from ledger l full join idem.records r using (key, operation_id) where key = $1`, key); n != 1 {
		l.t.Errorf("key %q: %d effects and records that do not pair up to one", key, n)
	}
	if e, r := l.entries(key), l.records(key); e != 1 || r != 1 {
		l.t.Errorf("key %q: %d effects and %d records, want one of each", key, e, r)
	}
}

// wantNone fails the test unless the key has left no trace.
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
