package idemtest_test

import (
	"flag"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemtest"
)

// With -short a suite makes few databases. It still loses the answer to COMMIT, which finds an
// effect outside of the transaction.
func TestShort_TriesFewFaults(t *testing.T) {
	short := flag.Lookup("test.short").Value.String()
	defer flag.Set("test.short", short)
	trials := func(mode string) (n int) {
		flag.Set("test.short", mode)
		suite := suiteOf(good)
		make := suite.New
		suite.New = func(t testing.TB) (http.Handler, *pgxpool.Pool) { n++; return make(t) }
		requireNothing(t, record(t, func(t testing.TB) { idemtest.Handler(t, suite) }))
		return n
	}
	fast, full := trials("true"), 0
	if short == "false" {
		full = trials("false")
	}
	if fast > 20 || full > 0 && full < 30 {
		t.Errorf("%d trials with -short, %d without", fast, full)
	}
	flag.Set("test.short", "true")
	for _, bad := range badFuncs {
		if bad.name != "effect on the pool" {
			continue
		}
		errors := record(t, func(t testing.TB) { idemtest.Func(t, funcSuite(bad.buy)) })
		if len(errors) == 0 || !strings.HasPrefix(errors[0], "idemtest: effect-in-transaction: ") {
			t.Errorf("%s: found %q", bad.name, errors)
		}
	}
}
