package presence

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// A process may go on with calls for as long as it likes after its last Worker has returned.
func TestSessionWhoseWorkersHaveLeftHasNothingToAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, worker := newGuard(), NewWatcher(func(string) bool { return false })
		g.join(worker)
		g.becomes(&db.StandGuardRow{Processes: 1})
		g.leave(worker)
		time.Sleep(time.Hour) // long after it would have tried to become a guard
		if asked, err := g.act(t.Context(), nil); asked || err != nil {
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
		g, worker := newGuard(), NewWatcher(func(string) bool { return false })
		g.join(worker)
		g.becomes(&db.StandGuardRow{Processes: 100_000})
		<-worker.watch
		g.notified(busyAgain)
		time.Sleep(guardLists)
		if len(worker.watch) != 1 || time.Now().After(g.tryAt) {
			t.Errorf("the other guard looks: %t; this one tries to become one at once: %t", len(worker.watch) == 1, time.Now().After(g.tryAt))
		}
		time.Sleep(2 * maxIdlePause)
		if !time.Now().After(g.tryAt) {
			t.Error("it does not try by itself, for as long as there once were many processes")
		}
	})
}

// A Worker that works on no more of a definition at a time, or on no other operation that may kill its process, leaves others due.
func TestWhatAGuardsOwnWorkerLeavesDueIsToldToOthers(t *testing.T) {
	t.Parallel()
	l := &guardLoop{worker: NewWatcher(func(name string) bool { return name != "strange" })}
	first := &db.WatchRow{Names: []string{"known", "strange"}}
	if rest := l.unclaimed(first, &db.WatchRow{}); rest != "strange" {
		t.Errorf("at first the others are told %q", rest)
	}
	<-l.worker.due // its own Worker is woken first
	second := &db.WatchRow{Names: []string{"known", "new"}}
	if rest := l.unclaimed(second, first); rest != "known" {
		t.Errorf("of what is still due the others are told %q", rest)
	}
	if l.worker.full.Store(true); l.unclaimed(second, &db.WatchRow{}) != "known\nnew" {
		t.Error("a Worker that has no room keeps some for itself")
	}
	if rest := l.unclaimed(&db.WatchRow{More: true}, &db.WatchRow{}); rest != anyName || len(l.worker.due) != 1 {
		t.Errorf("of more than can be said the others are told %q", rest)
	}
}
