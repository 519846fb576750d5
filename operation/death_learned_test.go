package operation_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// learning is an order whose function fails behind an answered charge while fails is true.
type learning struct {
	*till
	death    death
	end      string
	fails    atomic.Bool
	recorded bool // the charge, when the process was dead
	asked    int  // how often the bank was asked by then
}

var learningEnds = []string{"an error", "a panic", "an immediate constraint", "a deferred constraint"}

func (l *learning) code() *operation.Definition[int] {
	return l.define(func(op *operation.Op) (idem.Response, error) {
		err := steps(
			func() error { return l.tx(op, "reserve", "reserved = reserved + 1", "reserved = reserved - 1") },
			func() error { return l.charge(op, "charge", l.refund()) },
			func() error { return l.confirm(op) })
		if err == nil && l.fails.Load() {
			switch l.end {
			case "an error":
				err = errTimeout
			case "a panic":
				panic("for once")
			}
		}
		return answers("sold", err)
	})
}

func (l *learning) confirm(op *operation.Op) error {
	_, err := operation.Tx(op, "confirm", func(tx pgx.Tx) (bool, error) {
		if l.fails.Load() {
			switch l.end {
			case "an immediate constraint":
				return l.move("reserved = -1")(tx)
			case "a deferred constraint":
				_, err := tx.Exec(context.Background(), `insert into once values ($1), ($1)`, l.number)
				return true, err
			}
		}
		return l.move("reserved = reserved - 1, sold = sold + 1")(tx)
	})
	return err
}

func (l *learning) ends() (*till, death) { return l.till, l.death }
func (l *learning) String() string       { return fmt.Sprint(l.end, ": ", l.death) }

// A run fails behind a charge, and its process dies at any statement. The charge is not made again if it was recorded, or if a process
// that lives still knows its answer.
func TestCall_AnswerOutlivesAFailure(t *testing.T) {
	t.Parallel()
	for i, policy := range []string{"Keyed", "Once"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := newTills(t)
			var all []*learning
			order := func(number int, end string, d death) *learning {
				l := &learning{till: s.till(t, number, policy), death: d, end: end}
				l.fails.Store(true)
				return l
			}
			for j, end := range learningEnds {
				first := order(-1-j, end, death{})
				for k, d := range deaths(first.statements(t, first.code()), j) {
					if (i+j+k)%2 == 0 { // the others belong to the other policy
						all = append(all, order(len(all), end, d))
					}
				}
				first.fails.Store(false)
				if _, err := first.goOn(first.code()); err != nil || first.bank.requests() != 1 {
					t.Errorf("%s: %v, and the bank was asked %d times", end, err, first.bank.requests())
				}
			}
			forAll(all, func(l *learning) {
				l.dies(t, l.death, l.code())
				l.fails.Store(false)
				l.recorded = s.count(`select count(*) from idem.steps s join idem.operations o on o.id = s.operation_id where o.key = $1 and s.kind = 'call'`, l.key()) == 1
				l.asked = l.bank.requests()
			})
			goOnAll(t, s, all)
			forAll(all, func(l *learning) { l.settle(t) })
		})
	}
}

func (l *learning) settle(t *testing.T) {
	state, _, reason := l.state()
	known := l.recorded || l.death.cut && l.asked > 0
	asked := l.bank.requests()
	if known && (state == "parked" || asked != 1) || l.policy == "Once" && asked > 1 {
		t.Errorf("%v: %s %s, and the bank was asked %d times, of a charge that is known: %v", l, state, reason, asked, known)
	}
	res, err := l.settled(l.code())
	if books := l.books(); err != nil || books != sold {
		t.Errorf("%v: %+v, %v: %s", l, res, err, books)
	}
}
