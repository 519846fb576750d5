package purge

import (
	"testing"

	"github.com/idem-go/idem/lab/personality"
	"github.com/idem-go/idem/lab/pgtest"
)

// Some managed clusters do not allow synchronous_commit to be set. A portion then waits at COMMIT
// like any transaction.
func TestOnce_WorksIfSynchronousCommitCannotBeSet(t *testing.T) {
	t.Parallel()
	proxy := pgtest.Personality(t, personality.Multigres, pgtest.DSN(t), personality.Faults{})
	h := &house{t, pgtest.Open(t, proxy.DSN())}
	h.records(20, "expired", "completed", "2 hours")
	h.records(20, "live", "completed", "-1 hour")
	h.once(Options{MaxLag: -1, MaxDead: -1})
	h.wantLeft(map[string]int64{"live": 20})
	if proxy.Refused() == 0 {
		t.Error("nothing was refused: then this test says nothing")
	}
}
