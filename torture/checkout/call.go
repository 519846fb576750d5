package checkout

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/torture/bank"
	"github.com/idem-go/idem/torture/journal"
)

// charge calls the bank, and says how that is taken back.
func (r *running) charge(in *journal.Plan, round journal.Round, n int) error {
	name := round.Charge(n)
	c := r.customer(name, round.Call)
	c.declined = in.End == journal.Decline && n == len(in.Rounds)
	receipt, err := operation.Call(r.Op, name, c.safetyWithin(round.Window), c.book)
	if err != nil {
		return err
	}
	r.values[name] = receipt
	undo := r.customer(round.Repay(n), round.Refund)
	return operation.Undo(r.Op, undo.step, undo.safetyWithin(journal.LongWindow), func(ctx context.Context, key string) error {
		_, err := undo.book(ctx, key)
		return err
	})
}

// customer makes one call of the bank.
type customer struct {
	*running
	step       string
	safety     journal.Safety
	generation int // how often it has asked
	declined   bool
}

func (r *running) customer(step string, safety journal.Safety) *customer {
	return &customer{running: r, step: step, safety: safety}
}

func (c *customer) safetyWithin(window time.Duration) operation.Safety {
	switch c.safety {
	case journal.Once:
		return operation.Once
	case journal.Asked:
		return operation.Asked(c.find)
	}
	return operation.Keyed(window)
}

func (c *customer) request(key string) bank.Request {
	return bank.Request{
		Key: key, Operation: c.ID(), Step: c.step, Safety: c.safety, Generation: c.generation, Declined: c.declined,
		Process: c.process(), Slot: c.slot,
	}
}

func (c *customer) book(ctx context.Context, key string) (string, error) {
	receipt, err := c.bank.Book(ctx, c.request(key))
	switch {
	case errors.Is(err, bank.ErrDeclined):
		return "", operation.Final(bank.ErrDeclined)
	case err != nil && rand.IntN(2) == 0:
		return "", operation.Unknown(err)
	}
	return receipt, err
}

// find asks what became of a key. After that the bank refuses what was sent before.
func (c *customer) find(ctx context.Context, key string) (string, bool, error) {
	reply, err := c.bank.Ask(ctx, c.request(key))
	if err != nil {
		return "", false, fmt.Errorf("still unknown: %w", err)
	}
	c.generation = reply.Generation
	return reply.Receipt, reply.Done, nil
}
