package fleet_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/example/fleet"
)

var (
	keys  = flag.Int("keys", 600, "how many keys the tenant has that moves in TestEachKeyOfATenantMoves")
	moves = flag.Int("moves", 2, "how often it moves, there and back")
)

func TestEachKeyOfATenantMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open()
	w.fill(w.west, *keys)
	l := w.load(4)
	l.atLeast(20)
	l.mu.Lock()
	l.waits = nil
	l.mu.Unlock()
	home, other := w.west, w.east
	var pauses []time.Duration
	for range *moves {
		report := w.move(home, other, fleet.MoveConfig{})
		t.Logf("%+v", report)
		pauses = append(pauses, report.Pause)
		home, other = other, home
	}
	l.atLeast(20)
	l.stop()
	l.clients.Wait()
	const filled = "select count(*) from idem.records join orders on orders.id = execution_id join idem.inbox i on i.id = orders.id::text where idem.records.key like 'filled-%' and tenant = 'acme'"
	if n := number(t, home.Pool, filled); n != *keys {
		t.Errorf("%d keys have arrived with their orders, of %d", n, *keys)
	}
	if n := number(t, home.Pool, "select count(*) from idem.steps s join idem.operations o on o.id = operation_id where o.name = 'filled' and o.scope like 'acme/%'"); n != *keys/10*2 {
		t.Errorf("%d steps have arrived, of %d", n, *keys/10*2)
	}
	if n := number(t, w.west.Pool, "select count(*) from idem.records where scope like 'other/%'"); n != *keys {
		t.Errorf("the other tenant has %d keys left, of %d", n, *keys)
	}
	slices.Sort(l.waits)
	slices.Sort(pauses)
	t.Logf("of %d moves the pause was %v, and %v at most; of %d calls meanwhile, 50%% took %v, 99%% %v, the longest %v", *moves,
		pauses[len(pauses)/2], pauses[len(pauses)-1], len(l.waits), l.waits[len(l.waits)/2], l.waits[len(l.waits)*99/100], l.waits[len(l.waits)-1])
}
