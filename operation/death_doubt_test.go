package operation_test

import (
	"fmt"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/operation"
)

// version is a version of the code of an order.
type version struct {
	name   string
	front  func(c *till, op *operation.Op) error // of the charge
	charge string                                // its name; "" if there is none
	end    func() (idem.Response, error)         // nil: as it was
}

func (v version) of(c *till) *operation.Definition[int] {
	return c.define(func(op *operation.Op) (idem.Response, error) {
		err := steps(
			func() error { return c.tx(op, "reserve", "reserved = reserved + 1", "reserved = reserved - 1") },
			func() error {
				if v.front == nil {
					return nil
				}
				return v.front(c, op)
			})
		if err == nil && v.charge != "" {
			err = c.charge(op, v.charge, c.refund())
		}
		if err != nil {
			return idem.Response{}, err
		}
		if v.end != nil {
			return v.end()
		}
		err = steps(func() error { return outsideStep(op, "ship") }, func() error { return c.tx(op, "confirm", "reserved = reserved - 1, sold = sold + 1") })
		return answers(v.charge, err)
	})
}

func check(c *till, op *operation.Op) error { return c.tx(op, "check", "reserved = reserved") }

var oldVersion = version{name: "old", charge: "charge"}

var newVersions = []version{
	{name: "a step in front", charge: "charge", front: check},
	{name: "a step in front behind Changed", charge: "charge", front: func(c *till, op *operation.Op) error {
		if op.Changed("check") {
			return check(c, op)
		}
		return nil
	}},
	{name: "renamed", charge: "pay"},
	{name: "not asked for"},
	{name: "not asked for, and rejected", end: func() (idem.Response, error) { return idem.Response{}, idem.Reject(declined) }},
}

// fits reports whether this code may park an order for a reason.
func (v version) fits(reason operation.Reason, policy string) bool {
	if reason == operation.ReasonCallInDoubt {
		return policy == "Once" && v.charge != ""
	}
	return reason == operation.ReasonCodeChanged && v.name != newVersions[1].name
}

// evolving is an order whose code changes behind a death.
type evolving struct {
	*till
	death   death
	version version
}

func (e *evolving) code() *operation.Definition[int] { return e.version.of(e.till) }
func (e *evolving) ends() (*till, death)             { return e.till, e.death }
func (e *evolving) String() string                   { return fmt.Sprint(e.version.name, ": ", e.death) }

// A process of old code dies at each of its statements, and new code goes on. There is one charge or none, and it is recorded.
func TestChanged_BehindADeath(t *testing.T) {
	t.Parallel()
	for i, policy := range []string{"Keyed", "Asked", "Once"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := newTills(t)
			first := s.till(t, 0, policy)
			var all []*evolving
			for j, d := range deaths(first.statements(t, oldVersion.of(first)), i) {
				all = append(all, &evolving{till: s.till(t, j+1, policy), death: d, version: newVersions[(j+i)%len(newVersions)]})
			}
			forAll(all, func(e *evolving) { e.dies(t, e.death, oldVersion.of(e.till)) })
			goOnAll(t, s, all)
			forAll(all, func(e *evolving) { e.settle(t, e.death.cut) })
		})
	}
}

// The charge is in doubt. A process of new code dies at each of its statements.
func TestChanged_DeathBehindACallInDoubt(t *testing.T) {
	t.Parallel()
	for i, policy := range []string{"Keyed", "Asked", "Once"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := newTills(t)
			leave := func(number int) *till {
				c := s.till(t, number, policy)
				p := c.process(t)
				c.broken = func() { // behind the charge
					p.proxy.ArmEach(pgproxy.Before(nil), pgproxy.Reset)
					p.proxy.Cut(pgproxy.Reset)
				}
				c.run(t, p, oldVersion.of(c))
				c.broken = nil
				p.end(c, death{})
				return c
			}
			var all []*evolving
			for j, v := range newVersions {
				first := leave(-1 - j)
				for k, d := range deaths(first.statements(t, v.of(first)), i+j) {
					if k%len(newVersions) == (i+j)%len(newVersions) {
						all = append(all, &evolving{till: leave(len(all)), death: d, version: v})
					}
				}
			}
			forAll(all, func(e *evolving) { e.dies(t, e.death, e.code()) })
			goOnAll(t, s, all)
			forAll(all, func(e *evolving) {
				if charges, _ := e.bank.sums(); charges != 1 {
					t.Errorf("%v: %d charges", e, charges)
				}
				e.settle(t, false)
			})
		})
	}
}

// settle has a person settle what is parked, lets old code go on with it, and checks the books. Old code that has lost only its
// connection may have parked its own call.
func (e *evolving) settle(t *testing.T, old bool) {
	state, _, reason := e.state()
	d := e.code()
	if state == "parked" {
		if charges, _ := e.bank.sums(); charges > 1 || !e.version.fits(reason, e.policy) && !(old && oldVersion.fits(reason, e.policy)) {
			t.Errorf("%v: parked with %d charges: %s", e, charges, reason)
		}
		d = oldVersion.of(e.till)
	}
	res, err := e.settled(d)
	want := sold
	switch {
	case res.Rejected:
		want = noSale
	case string(res.Body) == "":
		want = "0 reserved, 1 sold, 0 charges, 0 refunds"
	}
	if books := e.books(); err != nil || books != want {
		t.Errorf("%v: %q, %v: %s, want %s", e, res.Body, err, books, want)
	}
}
