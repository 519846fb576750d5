package checkout

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// What a person does about operations.

// meddle cancels an operation now and then, and sees to what is parked.
func (c *caller) meddle(pool *pgxpool.Pool, e *journal.Event, parked *operation.ParkedError) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch {
	case parked != nil && rand.IntN(6) == 0:
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		c.cancel(ctx, pool, parked.OperationID)
	case parked != nil && rand.IntN(2) == 0:
		c.seeTo(ctx, pool, parked.OperationID)
	case e.Verb == journal.Start && e.Operation != "" && rand.IntN(12) == 0:
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		c.cancel(ctx, pool, e.Operation)
	case rand.IntN(50) == 0:
		if id := c.recent.one(); id != "" {
			c.cancel(ctx, pool, id)
		}
	case rand.IntN(20) == 0:
		c.visit(ctx, pool)
	}
}

// visit sees to a child that is parked, of which no caller is told, or cancels it.
func (c *caller) visit(ctx context.Context, pool *pgxpool.Pool) {
	const parked = "SELECT id::text FROM idem.operations WHERE state = 'parked' AND parent IS NOT NULL ORDER BY random() LIMIT 1"
	var id string
	switch err := pool.QueryRow(ctx, parked).Scan(&id); {
	case err != nil:
	case rand.IntN(5) == 0:
		c.cancel(ctx, pool, id)
	default:
		c.seeTo(ctx, pool, id)
	}
}

func (s *shop) meddles(what, id string) {
	s.note(journal.Event{Kind: journal.KindMeddle, Operation: id, Name: what})
}

// cancel cancels an operation, without calling now and then, and sends the same Cancel again now and then: that changes nothing.
func (s *shop) cancel(ctx context.Context, pool *pgxpool.Pool, id string, opts ...operation.CancelOption) {
	if rand.IntN(3) == 0 {
		opts = append(opts, operation.WithoutCalling())
	}
	for range 1 + rand.IntN(4)/3 {
		s.meddles("cancel", id)
		_ = operation.Cancel(ctx, pool, id, opts...)
	}
}

// seeTo settles a call in doubt by what the bank says, and lets anything else go on. An operation that was canceled and whose code has changed
// may be ended without the code, before the end of the run.
func (s *shop) seeTo(ctx context.Context, pool *pgxpool.Pool, id string) {
	status, err := operation.Show(ctx, pool, id)
	switch {
	case err != nil || status.State != operation.StateParked:
	case status.Reason == operation.ReasonCallInDoubt && (s.calm || rand.IntN(4) > 0):
		s.settle(ctx, pool, id, &status)
	case status.Canceled && status.Reason != operation.ReasonCallInDoubt && !s.calm && rand.IntN(8) == 0:
		s.cancel(ctx, pool, id, operation.WithoutCode())
	default:
		s.meddles("retry", id)
		_ = operation.Retry(ctx, pool, id)
	}
}

// errRefused is what a person hears who is told that something was refused.
var errRefused = operation.Final(bank.ErrDeclined)

// settle says what the bank says. What the bank does not know of by now it refuses from here on.
func (s *shop) settle(ctx context.Context, pool *pgxpool.Pool, id string, status *operation.Status) {
	isUndo := status.Kind == "undo"
	step := status.Step
	if isUndo {
		step = journal.UndoOf(status.Step, 0) // the other one is a Tx
	}
	reply, err := s.bank.LookUp(ctx, bank.Request{Operation: id, Step: step, Slot: s.slot, Process: s.process()})
	if err != nil {
		return
	}
	finding := operation.NotHappened
	switch {
	case reply.Done && isUndo:
		finding = operation.Happened(nil)
	case reply.Done:
		finding = operation.Happened(reply.Receipt)
	case strings.HasPrefix(step, "charge-") && rand.IntN(3) == 0: // of card A the function asks for an error of its type
		finding = refused(errRefused)
	}
	s.meddles("resolve", id)
	_ = operation.Resolve(ctx, pool, id, finding.As(*status).Of(status.Step))
}

// parkedOf is the ParkedError that err is, or nil.
func parkedOf(err error) *operation.ParkedError {
	parked, _ := errors.AsType[*operation.ParkedError](err)
	return parked
}
