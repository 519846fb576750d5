package idemtest

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemtest/internal/faultproxy"
)

// Pool creates a database with idem's schema and nothing else, and returns a pool on it. When the
// test ends, Pool closes the pool and drops the database. In the New function of a suite, Pool does
// so at the end of the trial. The functions in configure can change the configuration of the pool.
//
// Pool uses the server at DATABASE_URL. The role in DATABASE_URL must be allowed to create
// databases. Pool leaves one database on that server, as a template for the test databases. Its
// name is idemtest_template_ followed by a hash of the schema.
//
// Without DATABASE_URL, Pool starts a server. All tests of the process share this server, and it
// stops when the process ends. Pool looks for PostgreSQL's programs in PATH and in the usual
// install directories, and falls back to docker. Without programs and docker, Pool skips the test.
// If the environment variable CI is set, the test fails instead.
//
// The pool connects through a proxy, over TCP and without TLS. The suites use the proxy to break a
// connection at a given statement. Other pools and [database/sql] handles that are opened with the
// ConnString of the pool go through the same proxy. The proxy connects to the server as
// DATABASE_URL says: over TCP, with or without TLS, or over a Unix socket. If DATABASE_URL lists
// several hosts, the proxy uses the first.
func Pool(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	server := requireServer(t)
	database := server.create(t)
	proxy, err := faultproxy.Start(&database.Config)
	if err != nil {
		t.Fatalf("idemtest: start the proxy: %v", err)
	}
	port := proxy.Port()
	proxies.Store(port, proxy)
	t.Cleanup(func() {
		proxies.Delete(port)
		proxy.Close()
	})
	config, err := pgxpool.ParseConfig(throughProxy(database, port))
	if err != nil {
		t.Fatalf("idemtest: %v", err)
	}
	config.MaxConns = 8
	if s, ok := t.(*trialTB); ok && s.maxConns > 0 {
		config.MaxConns = s.maxConns
	}
	for _, f := range configure {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("idemtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// proxies maps the port of each running proxy to its *faultproxy.Proxy.
var proxies sync.Map

// proxyOf returns the proxy through which pool connects. It fails the test if pool does not connect
// through a proxy of idemtest.
func proxyOf(t testing.TB, pool *pgxpool.Pool) *faultproxy.Proxy {
	t.Helper()
	if pool == nil {
		t.Fatal("idemtest: New has returned no pool")
	}
	proxy, ok := proxies.Load(pool.Config().ConnConfig.Port)
	if !ok {
		t.Fatal("idemtest: the pool does not connect through idemtest: have New make it with idemtest.Pool, or with the ConnString of such a pool")
	}
	return proxy.(*faultproxy.Proxy)
}

// throughProxy returns a connection string that reaches database through the proxy on port.
func throughProxy(database *pgx.ConnConfig, port uint16) string {
	query := url.Values{"sslmode": {"disable"}}
	for name, value := range database.RuntimeParams {
		query.Set(name, value)
	}
	address := url.URL{
		Scheme: "postgres", User: url.UserPassword(database.User, database.Password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))), Path: "/" + database.Database, RawQuery: query.Encode(),
	}
	return address.String()
}

// closeLimit bounds the wait for connections that the test has not released.
const closeLimit = 30 * time.Second

// closePool closes pool. Pool.Close waits for every acquired connection, so a test that never
// releases one would block forever. After closeLimit, closePool fails the test instead.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() { defer close(closed); pool.Close() }()
	select {
	case <-closed:
	case <-time.After(closeLimit):
		t.Errorf("idemtest: %d connections of the pool are still in use %v after the test: release them before the test ends",
			pool.Stat().AcquiredConns(), closeLimit)
	}
}
