package fleet_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/example/fleet"
)

var keys = flag.Int("keys", 2000, "how many keys the tenant has that moves in TestEachKeyOfATenantMoves")

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
	report := w.move(w.west, w.east, fleet.MoveConfig{Progress: func(s fleet.Stage, rows int64) { t.Logf("%v: %s, %d rows", time.Now().Format("04:05.000"), s, rows) }})
	l.atLeast(20)
	l.stop()
	l.clients.Wait()
	const filled = "select count(*) from idem.records join orders on orders.id = execution_id join idem.inbox i on i.id = orders.id::text where idem.records.key like 'filled-%' and tenant = 'acme'"
	if n := number(t, w.east.Pool, filled); n != *keys {
		t.Errorf("%d keys have arrived with their orders, of %d", n, *keys)
	}
	if n := number(t, w.east.Pool, "select count(*) from idem.steps s join idem.operations o on o.id = operation_id where o.name = 'filled'"); n != *keys/10*2 {
		t.Errorf("%d steps have arrived, of %d", n, *keys/10*2)
	}
	if n := number(t, w.west.Pool, "select count(*) from idem.records where scope like 'other/%'"); n != *keys {
		t.Errorf("the other tenant has %d keys left, of %d", n, *keys)
	}
	slices.Sort(l.waits)
	t.Logf("%+v; of %d calls meanwhile, 50%% took %v, 99%% %v, the longest %v", report, len(l.waits),
		l.waits[len(l.waits)/2], l.waits[len(l.waits)*99/100], l.waits[len(l.waits)-1])
}
