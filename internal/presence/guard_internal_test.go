package presence

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// A process may make calls for any time after its last Worker has returned.
func TestGuard_SendsNothingWithoutWorkers(t *testing.T) {
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
			t.Errorf("act is called again after %v", pause)
		}
	})
}

// Work that comes and goes is notification to the other guard. That no guard is wanted for it
// spares each of many processes a look at all locks.
func TestWorkThatComesAndGoesHasNoProcessTryToBecomeAGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, worker := newGuard(), NewWatcher(func(string) bool { return false })
		g.join(worker)
		g.becomes(&db.StandGuardRow{Processes: 100_000})
		<-worker.watch
		g.handleNotification(busyAgain)
		time.Sleep(guardLists)
		if len(worker.watch) != 1 || time.Now().After(g.tryAt) {
			t.Errorf("the guard loop looks: %t; the session tries to become a guard at once: %t", len(worker.watch) == 1, time.Now().After(g.tryAt))
		}
		time.Sleep(2 * maxIdlePause)
		if !time.Now().After(g.tryAt) {
			t.Error("the session does not try to become a guard")
		}
	})
}

// A Worker that works on no more of a definition at a time, or on no other operation that may kill
// its process, leaves others due.
func TestWhatAGuardsOwnWorkerLeavesDueIsToldToOthers(t *testing.T) {
	t.Parallel()
	l := &guardLoop{worker: NewWatcher(func(name string) bool { return name != "strange" })}
	first := &db.WatchRow{Names: []string{"known", "strange"}}
	if rest := l.unclaimed(first, &db.WatchRow{}); rest != "strange" {
		t.Errorf("after the first look, others are notified of %q", rest)
	}
	<-l.worker.due // the own Worker is woken, too
	second := &db.WatchRow{Names: []string{"known", "new"}}
	if rest := l.unclaimed(second, first); rest != "known" {
		t.Errorf("after the second look, others are notified of %q", rest)
	}
	if l.worker.full.Store(true); l.unclaimed(second, &db.WatchRow{}) != "known\nnew" {
		t.Error("others are not notified of all names, although the own Worker has no room")
	}
	if rest := l.unclaimed(&db.WatchRow{More: true}, &db.WatchRow{}); rest != anyName || len(l.worker.due) != 1 {
		t.Errorf("with too many names, others are notified of %q", rest)
	}
}
