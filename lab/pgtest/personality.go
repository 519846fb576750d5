package pgtest

import (
	"os"
	"testing"

	"github.com/idem-go/idem/lab/personality"
)

// Personality returns a proxy that plays another server in front of a database, closed when the test is over.
func Personality(t testing.TB, p *personality.Personality, dsn string, faults personality.Faults) *personality.Proxy {
	t.Helper()
	proxy, err := personality.New(p, dsn, faults)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// played is the address of a database as the personality plays it that IDEM_TEST_PERSONALITY names, if any.
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
