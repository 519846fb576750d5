package idemsql_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/pgtest"
)

// skippedForAll are the tests of package idem that do not apply to any *sql.DB, and the reasons.
var skippedForAll = map[string]string{
	"TestUnansweredCommits.*": "a connection of database/sql cannot be removed from its pool, so the socket of a COMMIT whose caller has returned is closed",
	"TestCommitThatOutlastsContextAndGraceIsUnknownAndNeverCancelled": "counts such COMMITs",
	"TestTxInUseWhenFnReturnsNeverReachesTheNextUserOfTheConnection":  "a connection whose goroutine waits for itself cannot be removed either, and the test has a pool of one",
	"TestNothingIsPreparedForAnObserverThatIsNotThere":                "counts the allocations of idem.Do",
}

// skippedForStdlib are the tests that do not apply to a *sql.DB that is not from OpenDB. They count
// round trips, or need to see the pool.
var skippedForStdlib = map[string]string{
	"TestFirstRunCostsNoMoreRoundTripsThanThePlainTransaction": "it takes two more",
	"TestReplayCostsOneRoundTrip":                              "it takes two",
	"TestAllDeadConnectionsOfAPoolAreSkippedAtNoCost":          "the pool underneath is unknown: of the dead connections that idem never used, one is skipped for each idle connection of the *sql.DB",
	"TestNoWait_AfterTheLeaderHasLookedForTheRecord":           "the pool underneath is unknown: idem cannot see that it is exhausted, and the answer takes a second",
}

// The test runs lab/promises, the tests of package idem, with idemsql.Do in the place of idem.Do.
// See lab/promises/through_test.go.
func TestDo_KeepsThePromisesOfPackageIdem(t *testing.T) {
	pgtest.Long(t)
	tests := filepath.Join(t.TempDir(), "idem.test")
	if out, err := exec.Command("go", "test", "-c", "-o", tests, "../lab/promises").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for point, way := range []string{"OpenDB", "stdlib"} {
		if n, err := strconv.Atoi(os.Getenv("IDEM_TEST_SAMPLE")); err == nil && n%2 != point {
			continue
		}
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			skipped := names(skippedForAll)
			if way == "stdlib" {
				skipped = append(skipped, names(skippedForStdlib)...)
			}
			run := exec.Command(tests, "-test.short", "-test.parallel=4", "-test.timeout=1h", "-test.skip=^("+strings.Join(skipped, "|")+")$")
			run.Dir = "../lab/promises"
			run.Env = append(os.Environ(), "IDEM_TEST_THROUGH="+way)
			if out, err := run.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func names(reasons map[string]string) (patterns []string) {
	for pattern := range reasons {
		patterns = append(patterns, pattern)
	}
	return patterns
}
