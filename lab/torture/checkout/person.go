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

func (s *shop) cancel(ctx context.Context, pool *pgxpool.Pool, id string) {
	s.meddles("cancel", id)
	_ = operation.Cancel(ctx, pool, id)
}

// seeTo settles what is parked because nobody knows of a call, by what the bank says, and lets anything else go on.
func (s *shop) seeTo(ctx context.Context, pool *pgxpool.Pool, id string) {
	status, err := operation.Show(ctx, pool, id)
	switch {
	case err != nil || status.State != "parked":
	case strings.HasPrefix(status.Reason, "it was cancelled, and tx ") && !strings.Contains(status.Reason, ` call "`) && !strings.Contains(status.Reason, ` child "`):
		s.cancel(ctx, pool, id)
	case isHarmless(status.Step) && strings.Contains(status.Reason, "which no undo takes back"):
		s.cancel(ctx, pool, id)
	case strings.HasPrefix(status.Reason, "undo ") && rand.IntN(2) == 0,
		!strings.HasPrefix(status.Reason, "undo ") && !strings.Contains(status.Reason, "not known") &&
			!(strings.Contains(status.Reason, "Resolve the step") && rand.IntN(2) == 0):
		s.meddles("retry", id)
		_ = operation.Retry(ctx, pool, id)
	default:
		s.settle(ctx, pool, id, status)
	}
}

// isHarmless reports whether a person leaves what a step has done: a check, or a child that stands by itself.
func isHarmless(step string) bool {
	return strings.HasPrefix(step, "put-in") || strings.HasPrefix(step, "part-") || strings.HasPrefix(step, "portion-")
}

// errRefused is what a person hears who is told that something was refused.
var errRefused = operation.Final(bank.ErrDeclined)

// settle says what the bank says. What the bank does not know of by now it refuses from here on.
func (s *shop) settle(ctx context.Context, pool *pgxpool.Pool, id string, status operation.Status) {
	reply, err := s.bank.LookUp(ctx, bank.Request{Operation: id, Step: status.Step, Slot: s.slot, Process: s.process()})
	if err != nil {
		return
	}
	finding := operation.NotHappened
	switch {
	case reply.Done && status.Undoing:
		finding = operation.Happened(nil)
	case reply.Done:
		finding = operation.Happened(reply.Receipt)
	case strings.HasPrefix(status.Step, "charge-") && rand.IntN(3) == 0: // of card A the function asks for an error of its type
		finding = refused(errRefused)
	}
	s.meddles("resolve", id)
	_ = operation.Resolve(ctx, pool, id, finding.As(status).Of(status.Step))
}

// parkedOf is the ParkedError that err is, or nil.
func parkedOf(err error) *operation.ParkedError {
	parked, _ := errors.AsType[*operation.ParkedError](err)
	return parked
}
