package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// canceling is an order that a person cancels while its process executes a statement, at which the process may die.
type canceling struct {
	*till
	persons *pgxpool.Pool // of those who cancel
	at      death         // the statement; cut: the process lives
	row     bool          // the operation had a row at that moment
	cancel  error
	told    chan error // what a waiting caller got
	own     error      // what the caller in the process got
}

func (c *canceling) code() *operation.Definition[int] {
	return c.define(func(op *operation.Op) (idem.Response, error) {
		err := steps(
			func() error { return c.tx(op, "reserve", "reserved = reserved + 1", "reserved = reserved - 1") },
			func() error { return c.charge(op, "charge", c.refund()) },
			func() error { return c.tx(op, "confirm", "reserved = reserved - 1, sold = sold + 1") })
		return answers("sold", err)
	})
}

// work works on the order, and has a person cancel it meanwhile.
func (c *canceling) work(t *testing.T) {
	p := c.process(t)
	ctx, die := context.WithCancel(t.Context())
	defer die()
	match, stage := nth(c.at.at), pgproxy.Seen
	if c.at.behind {
		stage = pgproxy.Answered
	}
	stop := p.proxy.Observe(func(e pgproxy.Event) {
		if e.Stage != stage || !match(e.Statement) {
			return
		}
		c.meanwhile(t)
		if !c.at.cut {
			p.proxy.ArmEach(pgproxy.Before(nil), pgproxy.Reset)
			die()
		}
	})
	defer stop()
	_, c.own = c.code().Do(ctx, p.pool, scope, c.key(), hashA, 0)
	p.end(c.till, c.at)
}

// meanwhile has another caller wait for the order, and cancels it. It returns when that is done, or waits for the process.
func (c *canceling) meanwhile(t *testing.T) {
	state, id, _ := c.state()
	if c.row = state != ""; !c.row {
		return
	}
	waiting := make(waits, 100)
	c.told = make(chan error, 1)
	go func() {
		_, err := c.code().Do(t.Context(), c.pool, scope, c.key(), hashA, 0, idem.WithWait(limit), idem.WithObserver(waiting))
		c.told <- err
	}()
	select {
	case <-waiting:
	case err := <-c.told:
		c.told <- err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.cancel = operation.Cancel(t.Context(), c.persons, id)
	}()
	eventually(t, "Cancel", func() bool {
		select {
		case <-done:
			return true
		default:
			return c.count(`select count(*) from pg_stat_activity where application_name = 'person' and wait_event_type = 'Lock' and datname = current_database()`) > 0
		}
	})
}

// A person cancels an order at each of its statements, at which its process may die. The order completes, or is undone as a whole.
func TestCancel_AtAnyStatement(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Keyed", "Asked", "Once"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := newTills(t)
			persons := pgtest.Open(t, s.dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "person" })
			first := &canceling{till: s.till(t, 0, policy), persons: persons}
			var all []*canceling
			for i, d := range deaths(first.statements(t, first.code()), 0) {
				d.cut = i%3 > 0 != (policy == "Once")
				all = append(all, &canceling{till: s.till(t, i+1, policy), persons: persons, at: d})
			}
			forAll(all, func(c *canceling) { c.work(t) })
			forAll(all, func(c *canceling) { c.settle(t) })
		})
	}
}

func (c *canceling) String() string { return fmt.Sprint("canceled ", c.at) }

func (c *canceling) settle(t *testing.T) {
	if !c.row {
		if res, err := c.settled(c.code()); err != nil || c.books() != sold {
			t.Errorf("%v, before it had a row: %+v, %v: %s", c, res, err, c.books())
		}
		return
	}
	told := await(t, "the caller that waits", c.told)
	for _, err := range []error{told, c.own} {
		if err != nil && !errors.Is(err, operation.ErrCanceled) && !errors.Is(err, idem.ErrInProgress) && !errors.Is(err, operation.ErrParked) &&
			!(err == c.own && !c.at.cut) {
			t.Errorf("%v: a caller got %v", c, err)
		}
	}
	state, id, reason := c.state()
	for range 3 {
		if state != "parked" {
			break
		}
		if c.policy != "Once" {
			t.Errorf("%v: parked: %s", c, reason)
		}
		if err := c.person(id, reason); err != nil {
			t.Errorf("%v: %v", c, err)
			return
		}
		_ = c.code().Resume(t.Context(), c.pool, id)
		state, id, reason = c.state()
	}
	books := c.books()
	switch {
	case state == "completed" && books == sold && c.cancel != nil:
	case state == "undone" && (books == noSale || books == takeback) && c.cancel == nil:
	default:
		t.Errorf("%v, %v: it is %s: %s", c, c.cancel, state, books)
	}
	if n := c.count(`select count(*) from idem.operations where key = $1`, c.key()); n != 1 {
		t.Errorf("%v: the work was begun %d times", c, n)
	}
}
