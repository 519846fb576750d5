package pgtest

import (
	"testing"

	"github.com/idem-go/idem/lab/pgproxy"
)

// Proxy returns a proxy in front of a database. The proxy is closed at the end of the test.
func Proxy(t testing.TB, dsn string) *pgproxy.Proxy {
	t.Helper()
	proxy, err := pgproxy.New(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("pgtest: proxy: %v", err)
		}
	})
	return proxy
}
