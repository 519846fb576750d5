// Package pgtest gives every test a Postgres database of its own.
//
// The database is a clone of a migrated template, so that it takes some 30 ms and tests run in parallel without seeing
// each other. The template is made by lab/testenv, which `make test` runs the tests under; its two addresses reach
// the tests through the environment:
//
//	IDEM_TEST_DATABASE_URL   the server, as a role that may create databases
//	IDEM_TEST_TEMPLATE       the name of the template
//
// Without them a test is skipped, loudly; with IDEM_TEST_REQUIRE=1, it fails instead. With IDEM_TEST_KEEP=1, a failed
// test leaves its database and logs its address. With IDEM_TEST_SAMPLE=0, or another number, tests that kill a process at each of its
// statements take one of five ([Sampled]). With IDEM_TEST_PERSONALITY, the name of one in package personality, each database is behind a proxy that plays it.
package pgtest

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// New returns a pool on a fresh database that has the current schema and nothing else in it. configure may change how
// the pool is made. The pool is closed and the database dropped when the test and its subtests are over. A test that
// ends with a connection still acquired fails.
func New(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return Open(t, DSN(t), configure...)
}

// DSN returns the address of a fresh database that has the current schema, dropped when the test is over.
func DSN(t testing.TB) string {
	t.Helper()
	srv := requireServer(t)
	return played(t, srv.createFor(t, srv.template))
}

// EmptyDSN returns the address of a fresh database that has no schema at all, dropped when the test is over.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	return requireServer(t).createFor(t, "template0")
}

// Open returns a pool on any address, such as the one of a proxy in front of a database from [DSN]. Like the pool from
// [New], it is closed when the test is over, and has to have every connection back by then.
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

// OpenConfig is [Open] with a whole configuration, such as a changed one of another pool.
func OpenConfig(t testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool, closeLimit) })
	return pool
}

// closeLimit is how long a connection may take to come back after its test, from work that the test has cancelled.
const closeLimit = 2 * time.Minute

// closePool closes the pool, which waits for every acquired connection, for good if one has leaked.
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
