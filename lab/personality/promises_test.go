package personality_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/personality"
	"github.com/idem-go/idem/lab/pgtest"
)

// held are the tests of package lab/promises that pass behind every personality that supports idem,
// as far as they exist.
var held = []string{
	"TestDo_ExecutesOnceAndReplaysTheSameBytes", "TestTTL_ExpiredKeyIsNewForExactlyOneCaller",
	"TestDo_AnotherHashIsAMismatchThatRevealsNothing", "TestDo_ConcurrentCallWithAnotherHashIsAMismatch",
	"TestDoTx_KeyOfAnOpenTransactionIsInProgress", "TestWait_EndsWithInProgressAfterItsTime",
	"TestReject_UndoesTheWritesAndIsFinal", "TestDo_IgnoredSQLErrorCommitsNothing",
	"TestDo_PanicAndGoexitRollBackAndGoOn", "TestDo_RefusesCommitAndRollbackOnTheTx", "TestDo_TransactionEndedBySQLIsNeverASuccess",
	"TestDo_LostCommitAcknowledgementIsResolved", "TestDo_SilentCommitIsResolvedWhenTheContextEnds",
	"TestDo_CommitWithoutAnswerIsUnknownAndNeverCanceled", "TestDo_ContextEndingAtAnyMomentLeavesTheTruth",
	"TestDo_RunsAgainIfCommitNeverArrives", "TestDo_CutInsideFnFreesTheKey",
	"TestDo_CutAtAnyByteKeepsEffectAndResponseTogether", "TestDo_LostAnswerToTheClaimIsNotAnotherCaller",
	"TestDo_KeyOfALostHolderIsFreeOnceTheServerNotices",
	"TestDo_LoserOfTheInsertRaceSeesTheOutcomeOfTheWinner", "TestDo_ExecutesOnceAtEveryIsolationLevelWithAnyLock",
	"TestDo_OneEffectAndResponseUnderContentionAndFailures",
	"TestDo_RerunsAreBoundedAndEndInTheServersError",
	"TestDoTx_ConcurrentCallsExecuteOnce", "TestDoTx_InsideFnIsPartOfTheOuterCall",
}

// without lists tests that use a refused feature themselves.
var without = map[*personality.Personality][]string{
	personality.Multigres: {"TestDo_CommitWithoutAnswerIsUnknownAndNeverCanceled"}, // its fn sets synchronous_commit
}

// The test runs the tests of lab/promises. IDEM_TEST_PERSONALITY puts the proxy in front of each
// test's database (lab/pgtest). Only the personality without any lock is used, unless IDEM_TEST_ALL
// is set, as in make portability.
func TestPersonality_KeepsThePromises(t *testing.T) {
	pgtest.Long(t)
	tests := filepath.Join(t.TempDir(), "promises.test")
	if out, err := exec.Command("go", "test", "-c", "-o", tests, "../promises").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	list, err := exec.Command(tests, "-test.list=.").Output()
	if err != nil {
		t.Fatal(err)
	}
	existing := strings.Fields(string(list))
	serving := []*personality.Personality{personality.OldCockroachDB}
	if os.Getenv("IDEM_TEST_ALL") != "" {
		serving = append(serving, personality.CockroachDB, personality.Yugabyte, personality.Multigres)
	}
	for _, p := range serving {
		t.Run(p.Name, func(t *testing.T) {
			names := slices.DeleteFunc(slices.Clone(held), func(name string) bool {
				return slices.Contains(without[p], name) || !slices.Contains(existing, name)
			})
			if len(names) < len(held)/2 {
				t.Fatalf("only %d of %d tests exist: renew the list", len(names), len(held))
			}
			run := exec.Command(tests, "-test.short", "-test.v", "-test.parallel=6", "-test.timeout=1h", "-test.run=^("+strings.Join(names, "|")+")$")
			run.Dir = "../promises"
			run.Env = append(os.Environ(), "IDEM_TEST_PERSONALITY="+p.Name)
			out, err := run.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for _, name := range names {
				if !strings.Contains(string(out), "--- PASS: "+name+" (") {
					t.Errorf("%s has not passed", name)
				}
			}
		})
	}
}
