// Package pgtest gives every test a Postgres database of its own.
//
// The database is a clone of a migrated template. Cloning takes some 30 ms, and tests on different
// databases can run in parallel. lab/testenv creates the template; `make test` runs the tests under
// testenv. The tests find the server and the template in the environment:
//
//	IDEM_TEST_DATABASE_URL   the server, as a role that may create databases
//	IDEM_TEST_TEMPLATE       the name of the template
//
// Without these variables a test is skipped with a hint. Other variables change what the tests do:
//
//	IDEM_TEST_REQUIRE=1      a test without a database fails; it is not skipped
//	IDEM_TEST_KEEP=1         a failed test keeps its database and logs its address
//	IDEM_TEST_SAMPLE=0       tests that repeat at many points run at one in five ([Sampled])
//	IDEM_TEST_PERSONALITY    each database is behind a proxy with this personality
package pgtest

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// New returns a pool on a new database that has the current schema and no rows. configure can
// change the configuration of the pool. The pool is closed and the database is dropped at the end
// of the test and its subtests. The test fails if a connection is then still acquired.
func New(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return Open(t, DSN(t), configure...)
}

// DSN returns the address of a new database with the current schema. The database is dropped at the
// end of the test.
func DSN(t testing.TB) string {
	t.Helper()
	srv := requireServer(t)
	return played(t, srv.createFor(t, srv.template))
}

// EmptyDSN returns the address of a new database without the schema. The database is dropped at the
// end of the test.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	return requireServer(t).createFor(t, "template0")
}

// Open returns a pool on any address, such as the address of a proxy in front of a database from
// [DSN]. The pool is closed at the end of the test. The test fails if a connection is then still
// acquired.
func Open(t testing.TB, dsn string, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for _, f := range configure {
		f(config)
	}
	return OpenConfig(t, config)
}

// OpenConfig is like [Open], but takes a complete configuration.
func OpenConfig(t testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool, closeLimit) })
	return pool
}

// closeLimit is how long canceled work may take after a test to release its connections.
const closeLimit = 2 * time.Minute

// closePool closes the pool. Close waits for acquired connections without a limit, so closePool
// reports a leaked connection after limit and returns.
func closePool(t testing.TB, pool *pgxpool.Pool, limit time.Duration) {
	t.Helper()
	closed := make(chan struct{})
	go func() { defer close(closed); pool.Close() }()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Errorf("pgtest: %d connections are still acquired %v after the test: something did not give them back",
			pool.Stat().AcquiredConns(), limit)
	}
}

// withDatabase returns the address of another database on the same server.
func withDatabase(server *url.URL, database string) string {
	address := *server
	address.Path = "/" + database
	return address.String()
}
