package operation_test

import (
	"fmt"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// undoing is an order that is rejected in the end.
type undoing struct {
	*till
	death death
	way   string
}

var undoingWays = map[string]func(*undoing, *operation.Op) error{
	"33 reservations and one undo": func(u *undoing, op *operation.Op) error {
		return steps(
			func() error { return u.charge(op, "charge") },
			func() error { return u.refund(op) },
			func() error { return u.reserve(op, 33) },
			func() error { return u.undoTx(op, "release", "reserved = reserved - 33") })
	},
	"Tx, Call, Tx, and two undos": func(u *undoing, op *operation.Op) error {
		return steps(
			func() error { return u.reserve(op, 1) },
			func() error { return u.charge(op, "charge") },
			func() error { return u.reserve(op, 1) },
			func() error { return u.undoTx(op, "release", "reserved = reserved - 2") },
			func() error { return u.refund(op) })
	},
	"both undos before their steps": func(u *undoing, op *operation.Op) error {
		return steps(
			func() error { return u.refund(op) },
			func() error { return u.undoTx(op, "release", "reserved = reserved - 33") },
			func() error { return u.charge(op, "charge") },
			func() error { return u.reserve(op, 33) })
	},
	"40 undos in a row": func(u *undoing, op *operation.Op) error {
		for i := range 40 {
			err := steps(
				func() error { return u.reserve(op, 1) },
				func() error { return u.undoTx(op, fmt.Sprint("release ", i), "reserved = reserved - 1") })
			if err != nil {
				return err
			}
		}
		return steps(func() error { return u.charge(op, "charge") }, func() error { return u.refund(op) })
	},
}

// reserve takes so many steps, of one each.
func (u *undoing) reserve(op *operation.Op, n int) error {
	for range n {
		if err := u.tx(op, "reserve", "reserved = reserved + 1"); err != nil {
			return err
		}
	}
	return nil
}

func (u *undoing) code() *operation.Definition[int] {
	return u.define(func(op *operation.Op) (idem.Response, error) {
		if err := undoingWays[u.way](u, op); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(declined)
	})
}

func (u *undoing) ends() (*till, death) { return u.till, u.death }

// What was reserved and paid is released and refunded, all of it and once, wherever the process dies.
func TestOrderThatIsRejectedIsUndoneAsAWholeWhereverItsProcessDies(t *testing.T) {
	t.Parallel()
	for way := range undoingWays {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newTills(t)
			first := &undoing{till: s.till(t, 0, "Keyed"), way: way}
			var all []*undoing
			for i, d := range deaths(first.statements(t, first.code()), len(way)) {
				all = append(all, &undoing{till: s.till(t, i+1, "Keyed"), death: d, way: way})
			}
			t.Logf("%d deaths", len(all))
			forAll(all, func(u *undoing) { u.dies(t, u.death, u.code()) })
			goOnAll(t, s, all)
			forAll(append(all, first), func(u *undoing) {
				res, err := u.goOn(u.code())
				if books := u.books(); err != nil || !res.Rejected || books != takeback && books != noSale {
					t.Errorf("%v: %+v, %v: %s", u.death, res, err, books)
				}
			})
			if books := first.books(); books != takeback {
				t.Errorf("if nothing dies: %s", books)
			}
		})
	}
}
