package fleet_test

import (
	"testing"

	"github.com/idem-go/idem/example/fleet"
)

func TestTenantMovesUnderLoadAndBackAndNothingIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open()
	l := w.load(6)
	l.atLeast(50)
	there := w.move(w.west, w.east, fleet.MoveConfig{})
	l.atLeast(50)
	back := w.move(w.east, w.west, fleet.MoveConfig{})
	l.atLeast(50)
	l.end(w, w.west, w.east)
	t.Logf("there: %+v, back: %+v", there, back)
}

// A cluster whose tables have partitions gives its tenants to one that has none, and takes them back.
func TestTenantMovesBetweenTablesWithPartitionsAndWithout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "west")
	w.open()
	w.fill(w.west, 200)
	l := w.load(4)
	l.atLeast(30)
	w.move(w.west, w.east, fleet.MoveConfig{})
	l.atLeast(30)
	for _, table := range []string{"idem.records", "idem.inbox"} {
		if n := number(t, w.west.Pool, "select count(*) from "+table+" where "+map[string]string{"idem.records": "scope", "idem.inbox": "consumer"}[table]+" like 'acme/%'"); n != 0 {
			t.Errorf("the old home has %d rows left in %s", n, table)
		}
	}
	w.move(w.east, w.west, fleet.MoveConfig{})
	l.atLeast(30)
	l.stop()
	l.clients.Wait()
	const filled = "select count(*) from idem.records r join orders o on o.id = r.execution_id join idem.inbox i on i.id = o.id::text where r.key like 'filled-%' and o.tenant = 'acme'"
	if n := number(t, w.west.Pool, filled); n != 200 {
		t.Errorf("%d keys are back with their orders and messages, of 200", n)
	}
	if n := number(t, w.west.Pool, "select count(distinct tableoid) from idem.records where scope like 'acme/%'"); n != 4 {
		t.Errorf("they are in %d partitions of 4", n)
	}
	for key, answer := range l.answers {
		if again, err := w.order(t.Context(), key, l.orders[key]); err != nil || again != answer {
			t.Fatalf("asked again, a client is told %q and %v, and was told %q", again, err, answer)
		}
	}
}
