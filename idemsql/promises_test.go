package idemsql_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/pgtest"
)

// promises are the tests of package idem whose outcome may depend on who owns the connection: how a
// COMMIT ends, what a lost connection, a canceled context and a panic leave, and nested calls.
var promises = []string{
	"TestDo_InterruptedCommitIsACommit", "TestDo_LostConnectionDoesNotCancelCommit", "TestDo_LostCommitAcknowledgementIsResolved",
	"TestDo_SilentCommitIsResolvedWhenTheContextEnds", "TestDo_RunsAgainIfCommitNeverArrives", "TestDo_ErrorAtCommitIsTheServersOwn",
	"TestDo_CutAtAnyByteKeepsEffectAndResponseTogether", "TestDo_CutInsideFnFreesTheKey",
	"TestDo_ContextEndingAtAnyMomentLeavesTheTruth", "TestDo_ContextEndingBeforeCommitRollsBack", "TestDo_NextUserOfTheConnectionCanCancelItsQuery",
	"TestDo_PanicAndGoexitRollBackAndGoOn", "TestDo_TransactionEndedBySQLIsNeverASuccess", "TestDo_OpenResultsAbortAndCostTheConnection",
	"TestDo_TxInUseWhenFnReturnsCommitsNothing", "TestDo_ConnectionClosedByFnCommitsNothing", "TestTx_IsDeadAfterFnAndNeverReachesTheNextUser",
	"TestReject_UndoesTheWritesAndIsFinal", "TestDoTx_InsideFnIsPartOfTheOuterCall", "TestDo_NestedOnAnExhaustedPoolIsAnErrorNotADeadlock",
	"TestDo_OneEffectAndResponseUnderContentionAndFailures", "TestDo_ReplacesStaleStatements",
}

// The test runs tests of lab/promises with idemsql.Do in the place of idem.Do. See
// lab/promises/harness_test.go.
func TestDo_KeepsThePromisesOfPackageIdem(t *testing.T) {
	pgtest.Long(t)
	tests := filepath.Join(t.TempDir(), "idem.test")
	if out, err := exec.Command("go", "test", "-c", "-o", tests, "../lab/promises").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, way := range []string{"OpenDB", "stdlib"} {
		t.Run(way, func(t *testing.T) {
			run := exec.Command(tests, "-test.short", "-test.v", "-test.parallel=4", "-test.timeout=10m", "-test.run=^("+strings.Join(promises, "|")+")$")
			run.Dir = "../lab/promises"
			run.Env = append(os.Environ(), "IDEM_TEST_THROUGH="+way)
			out, err := run.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for _, name := range promises {
				if !strings.Contains(string(out), "--- PASS: "+name+" (") {
					t.Errorf("%s has not passed", name)
				}
			}
		})
	}
}
