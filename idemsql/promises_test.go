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

// Tests of package idem that are not those of idemsql, and why.
var notOfEither = map[string]string{
	"TestUnansweredCommits.*": "a connection of database/sql cannot be taken out of its pool: the socket of a COMMIT whose caller has left is closed",
	"TestCommitThatOutlastsContextAndGraceIsUnknownAndNeverCancelled": "counts those COMMITs",
	"TestTxInUseWhenFnReturnsNeverReachesTheNextUserOfTheConnection":  "nor can one whose goroutine waits for itself, and the test has a pool of one",
	"TestNothingIsPreparedForAnObserverThatIsNotThere":                "counts the allocations of idem.Do",
}

// And those that know how many round trips idem.Do takes, or that it has the pool of the *sql.DB.
var notOfOthers = map[string]string{
	"TestFirstRunCostsNoMoreRoundTripsThanThePlainTransaction": "here it is two more",
	"TestReplayCostsOneRoundTrip":                              "here it is two",
	"TestAllDeadConnectionsOfAPoolAreSkippedAtNoCost":          "the pool beneath is not known: of the connections that died and were never used by idem, one is skipped for each that is idle in the *sql.DB",
	"TestNoWait_AfterTheLeaderHasLookedForTheRecord":           "the pool beneath is not known: whether it is used up cannot be seen, and the answer takes a second",
}

// The same bodies: the tests of what package idem promises, with each Do in them one of this package: see lab/promises/through_test.go.
func TestPromisesOfDoAreKeptThroughDatabaseSQL(t *testing.T) {
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
			skipped := names(notOfEither)
			if way == "stdlib" {
				skipped = append(skipped, names(notOfOthers)...)
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
