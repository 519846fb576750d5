package operation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// A process may go on with calls for as long as it likes after its last Worker has returned.
func TestSessionWhoseWorkersHaveLeftHasNothingToAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, worker := newGuard(), newSentry(func(string) bool { return false })
		g.join(worker)
		g.stood(&store.StandGuard{Processes: 1})
		g.leave(worker)
		time.Sleep(time.Hour) // long after it would have tried to become a guard
		if asked, err := g.stand(t.Context(), nil); asked || err != nil {
			t.Fatalf("asked: %t, %v", asked, err)
		}
		if pause := g.pause(pingPause); pause < guardLists/4 {
			t.Errorf("it looks what there is to ask every %v", pause)
		}
	})
}

// Work that comes and goes is told to the other guard. That no guard is wanted for it spares each of many processes a look at all locks.
func TestWorkThatComesAndGoesHasNoProcessTryToBecomeAGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, worker := newGuard(), newSentry(func(string) bool { return false })
		g.join(worker)
		g.stood(&store.StandGuard{Processes: 100_000})
		<-worker.watch
		g.hear(busyNames)
		time.Sleep(guardLists)
		if len(worker.watch) != 1 || time.Now().After(g.wish) {
			t.Errorf("the other guard looks: %t; this one tries to become one at once: %t", len(worker.watch) == 1, time.Now().After(g.wish))
		}
		time.Sleep(2 * longest)
		if !time.Now().After(g.wish) {
			t.Error("it does not try by itself, for as long as there once were many processes")
		}
	})
}
