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
