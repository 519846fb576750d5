package operation_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

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
	"Call, and many Tx": func(u *undoing, op *operation.Op) error {
		return steps(
			func() error { return u.charge(op, "charge", u.refund()) },
			func() error { return u.reserve(op, 33) })
	},
	"Tx, Call, Tx": func(u *undoing, op *operation.Op) error {
		return steps(
			func() error { return u.reserve(op, 1) },
			func() error { return u.charge(op, "charge", u.refund()) },
			func() error { return u.reserve(op, 1) })
	},
	"many Tx, and Call": func(u *undoing, op *operation.Op) error {
		return steps(
			func() error { return u.reserve(op, 40) },
			func() error { return u.charge(op, "charge", u.refund()) })
	},
	"several undos of one step": func(u *undoing, op *operation.Op) error {
		return steps(
			func() error {
				return u.tx(op, "reserve", "reserved = reserved + 3", "reserved = reserved - 1", "reserved = reserved - 1")
			},
			func() error {
				return u.charge(op, "charge", u.refund(), operation.UndoTx(func(tx pgx.Tx, _ string) error {
					_, err := u.move("reserved = reserved - 1")(tx)
					return err
				}))
			})
	},
}

// reserve takes n steps, each with an undo.
func (u *undoing) reserve(op *operation.Op, n int) error {
	for range n {
		if err := u.tx(op, "reserve", "reserved = reserved + 1", "reserved = reserved - 1"); err != nil {
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

// The process of a rejected order dies at each of its statements. What was reserved and paid is released and refunded once.
func TestUndo_BehindADeath(t *testing.T) {
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
