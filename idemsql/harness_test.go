package idemsql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

// limit bounds how long a test waits for an event that must happen.
const limit = waiting.Limit

const scope = "tenant-1/POST orders"

var (
	hashA = idem.Hash{1}
	hashB = idem.Hash{2}
	ok    = idem.Response{Status: 201, Body: []byte("ok")}

	errBusiness = errors.New("insufficient funds")
)

// dbKind is a way to open a *sql.DB over pgx. trips is how many round trips a first run takes
// besides those of fn.
type dbKind struct {
	name  string
	open  func(t testing.TB, dsn string, conns int32) *sql.DB
	trips int
}

var dbKinds = []dbKind{
	{"OpenDB", func(t testing.TB, dsn string, conns int32) *sql.DB {
		return idemsql.OpenDB(pgtest.Open(t, dsn, maxConns(conns)))
	}, 2},
	{"OpenDBFromPool", func(t testing.TB, dsn string, conns int32) *sql.DB {
		return stdlib.OpenDBFromPool(pgtest.Open(t, dsn, maxConns(conns)))
	}, 4},
	{"sql.Open", func(t testing.TB, dsn string, conns int32) *sql.DB {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(int(conns))
		db.SetMaxIdleConns(int(conns))
		return db
	}, 4},
}

func maxConns(n int32) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) { config.MaxConns = n }
}

// shop is a database with a table of effects, and a *sql.DB that reaches it through a proxy.
type shop struct {
	testing.TB
	pool  *pgxpool.Pool
	dsn   string
	proxy *pgproxy.Proxy
	db    *sql.DB
	runs  atomic.Int64
}

// withEachDB runs a test with each kind of *sql.DB.
func withEachDB(t *testing.T, conns int32, test func(*testing.T, *shop, dbKind)) {
	t.Parallel()
	for _, way := range dbKinds {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			test(t, newShop(t, way, conns), way)
		})
	}
}

func newShop(t *testing.T, way dbKind, conns int32) *shop {
	t.Helper()
	dsn := pgtest.DSN(t)
	s := &shop{TB: t, dsn: dsn, pool: pgtest.Open(t, dsn), proxy: pgtest.Proxy(t, dsn)}
	_, err := s.pool.Exec(t.Context(), `create table ledger (id bigint generated always as identity primary key, key text not null, execution_id uuid)`)
	if err != nil {
		t.Fatal(err)
	}
	s.db = way.open(t, s.proxy.DSN(), conns)
	t.Cleanup(func() {
		s.wantNoneInUse()
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// charge returns an fn that inserts one entry through database/sql.
func (s *shop) charge(key string) func(*sql.Tx) (idem.Response, error) {
	return func(tx *sql.Tx) (idem.Response, error) {
		s.runs.Add(1)
		own, err := idemsql.Tx(context.Background(), tx)
		if err != nil {
			return idem.Response{}, err
		}
		operation, _ := idem.ExecutionID(own)
		var id int64
		err = tx.QueryRow(`insert into ledger (key, execution_id) values ($1, $2) returning id`, key, operation).Scan(&id)
		return idem.Response{Status: 201, Body: fmt.Appendf(nil, `{"entry":%d}`, id)}, err
	}
}

func (s *shop) count(sql string, args ...any) (n int) {
	s.Helper()
	if err := s.pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *shop) entries(key string) int {
	return s.count(`select count(*) from ledger where key = $1`, key)
}
func (s *shop) records(key string) int {
	return s.count(`select count(*) from idem.records where key = $1`, key)
}

// wantOnce fails the test unless the key has one effect and one record, with the same execution ID.
func (s *shop) wantOnce(key string) {
	s.Helper()
	n := s.count(`select count(*) from ledger join idem.records using (key, execution_id) where key = $1`, key)
	if e, r := s.entries(key), s.records(key); e != 1 || r != 1 || n != 1 {
		s.Errorf("key %q: %d effects, %d records, %d pairs of them: want one of each", key, e, r, n)
	}
}

func (s *shop) wantNone(key string) {
	s.Helper()
	if e, r := s.entries(key), s.records(key); e != 0 || r != 0 {
		s.Errorf("key %q: %d effects and %d records, want none", key, e, r)
	}
}

// wantWhole fails the test if the key has an effect without a record, or a record without an
// effect.
func (s *shop) wantWhole(key string) {
	s.Helper()
	if n := s.count(`select (select count(*) from ledger where key = $1) - (select count(*) from idem.records where key = $1)`, key); n != 0 {
		s.Errorf("key %q: %d effects more than records, want as many", key, n)
	}
}

// wantFree fails the test unless a call for key executes at once.
func (s *shop) wantFree(key string) {
	s.Helper()
	res, err := idemsql.Do(context.Background(), s.db, scope, key, hashB, s.charge(key), idem.WithWait(limit))
	if err != nil || res.Replayed {
		s.Errorf("key %q is not free: %+v, %v", key, res, err)
		return
	}
	s.wantOnce(key)
}

// wantNoneInUse waits until no connection is in use. A replay returns its connection in the
// background.
func (s *shop) wantNoneInUse() {
	s.Helper()
	deadline := time.Now().Add(limit)
	for s.db.Stats().InUse > 0 {
		if time.Now().After(deadline) {
			s.Fatalf("%d connections were not given back", s.db.Stats().InUse)
		}
		time.Sleep(time.Millisecond)
	}
}

// escape runs f in a goroutine, and swallows its panic or Goexit.
var escape = waiting.Escape

// do calls Do and returns only the error.
func (s *shop) do(key string, fn func(*sql.Tx) (idem.Response, error), opts ...idem.Option) error {
	_, err := idemsql.Do(context.Background(), s.db, scope, key, hashA, fn, opts...)
	return err
}
