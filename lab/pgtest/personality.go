package pgtest

import (
	"os"
	"testing"

	"github.com/idem-go/idem/lab/personality"
)

// Personality returns a proxy that makes a database behave like p. The proxy is closed at the end
// of the test.
func Personality(t testing.TB, p *personality.Personality, dsn string, faults personality.Faults) *personality.Proxy {
	t.Helper()
	proxy, err := personality.New(p, dsn, faults)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("pgtest: personality: %v", err)
		}
	})
	return proxy
}

// played puts a proxy with the personality that IDEM_TEST_PERSONALITY names in front of a database,
// and returns the address of the proxy. It returns dsn if the variable is empty.
func played(t testing.TB, dsn string) string {
	t.Helper()
	name := os.Getenv("IDEM_TEST_PERSONALITY")
	if name == "" {
		return dsn
	}
	for _, p := range personality.All {
		if p.Name == name {
			return Personality(t, p, dsn, personality.Faults{}).DSN()
		}
	}
	t.Fatalf("pgtest: IDEM_TEST_PERSONALITY: there is no personality %q", name)
	return ""
}
