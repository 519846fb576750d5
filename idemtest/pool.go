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

// Pool returns a pool on a database of its own, which has idem's schema and nothing else in it. The database is dropped, and the
// pool closed, when the test is over; where a suite of this package calls the function that calls Pool, when its trial is over.
// configure may change how the pool is made.
//
// The server is the one at DATABASE_URL, whose role has to be allowed to create databases. Without that variable it is a server
// that Pool starts for the tests of the process: by PostgreSQL's programs, from PATH or where packages put them, or else by
// docker. It ends with the process. On a server at DATABASE_URL one database stays, idemtest_template_ and a hash of the schema,
// of which all others are copies. Without any of the three the test is skipped, and fails where CI is set.
//
// The pool connects through a proxy of this package, by TCP and without TLS: that is how the suites break a connection at a
// statement. So does every other pool or [database/sql] handle that is opened by the pool's ConnString. The proxy itself reaches
// the server by whatever DATABASE_URL says: TCP with TLS or without, or a socket file. Of several hosts it takes the first.
func Pool(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	server := requireServer(t)
	database := server.create(t)
	proxy, err := faultproxy.Start(&database.Config)
	if err != nil {
		t.Fatalf("idemtest: the proxy: %v", err)
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
	if s, ok := t.(*scene); ok && s.maxConns > 0 {
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

// proxies are those in use, by their ports.
var proxies sync.Map

// proxyOf returns the proxy that a pool connects through.
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

// throughProxy is the address of a database by way of the proxy.
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

// closeLimit is how long a connection may take to come back after its test.
const closeLimit = 30 * time.Second

// closePool closes a pool, which waits for every connection that is still in use: for good, if the test keeps one.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() { defer close(closed); pool.Close() }()
	select {
	case <-closed:
	case <-time.After(closeLimit):
		t.Errorf("idemtest: %d connections of the pool are still in use %v after the test: something keeps them", pool.Stat().AcquiredConns(), closeLimit)
	}
}
