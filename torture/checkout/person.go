package checkout

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/torture/bank"
	"github.com/idem-go/idem/torture/journal"
)

// What a person does about operations.

// meddle cancels an operation now and then, soon after it was started, and settles what is parked.
func (c *caller) meddle(pool *pgxpool.Pool, e *journal.Event, parked *operation.ParkedError) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch {
	case parked != nil && rand.IntN(3) == 0:
		c.settle(ctx, pool, parked)
	case parked != nil && rand.IntN(6) == 0, e.Verb == journal.Start && e.Operation != "" && rand.IntN(12) == 0:
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		c.note(journal.Event{Kind: journal.KindMeddle, Operation: e.Operation, Name: "cancel"})
		_ = operation.Cancel(ctx, pool, e.Operation)
	}
}

// settle says what the bank says about the call of which nobody knows. If the bank does not know of it, it may come yet.
func (c *caller) settle(ctx context.Context, pool *pgxpool.Pool, parked *operation.ParkedError) {
	reply, err := c.bank.LookUp(ctx, bank.Request{Operation: parked.OperationID, Step: parked.Step, Slot: c.slot, Process: c.process()})
	if err != nil || !reply.Done {
		return
	}
	c.note(journal.Event{Kind: journal.KindMeddle, Operation: parked.OperationID, Name: "resolve"})
	_ = operation.Resolve(ctx, pool, parked.OperationID, operation.Happened(reply.Receipt))
}

// parkedOf is the ParkedError that err is, or nil.
func parkedOf(err error) *operation.ParkedError {
	parked, _ := errors.AsType[*operation.ParkedError](err)
	return parked
}
