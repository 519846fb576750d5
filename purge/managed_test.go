package purge

import (
	"testing"

	"github.com/idem-go/idem/lab/personality"
	"github.com/idem-go/idem/lab/pgtest"
)

// A cluster may keep synchronous_commit to itself: then a portion waits as any transaction does.
func TestPurgeWorksWhereSynchronousCommitMayNotBeSet(t *testing.T) {
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
