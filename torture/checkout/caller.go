package checkout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/torture/history"
	"github.com/idem-go/idem/torture/journal"
)

// caller makes calls, one after the other.
type caller struct {
	*shop
	seed  uint64
	start time.Duration
	keys  int
	life  time.Duration
	pools []*pgxpool.Pool
}

// key chooses one of those in use: the present ones, or one of a while ago.
func (c *caller) key() string {
	age := int((history.Now() - c.start) / c.life)
	if rand.IntN(3) == 0 {
		age -= rand.IntN(6)
	}
	return fmt.Sprintf("key-%d-%d", max(age, 0), rand.IntN(c.keys))
}

// call makes one call, and writes down when it began, and when and how it ended.
func (c *caller) call() history.Outcome {
	name, verb, key := c.next(), journal.Do, c.key()
	if rand.IntN(5) == 0 {
		verb = journal.Start
	}
	c.note(journal.Event{Kind: journal.KindCall, Op: name, Verb: verb, Key: key})
	e, parked := c.ask(verb, key)
	e.Kind, e.Op, e.Verb, e.Key = journal.KindReturn, name, verb, key
	c.note(e)
	c.meddle(c.pool, &e, parked)
	return e.Outcome
}

// ask makes the call in a goroutine of its own: the function may panic.
func (c *caller) ask(verb, key string) (e journal.Event, parked *operation.ParkedError) {
	limit := time.Duration(rand.IntN(4000)) * time.Millisecond
	if rand.IntN(4) == 0 { // it leaves in the midst of something
		limit = time.Duration(rand.IntN(100)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	answered := make(chan struct{})
	go func() {
		e.Outcome = history.Panicked
		defer func() {
			if p := recover(); p != nil && p != any(errFlaky) {
				panic(p)
			}
			close(answered)
		}()
		pool := c.pools[rand.IntN(len(c.pools))]
		if verb == journal.Start {
			e = c.begin(ctx, pool, key)
			return
		}
		wait := idem.WithWait(time.Duration(rand.IntN(3)) * 500 * time.Millisecond)
		result, err := c.checkout.Do(ctx, pool, scope, key, hashOf(key), journal.PlanOf(c.seed, key), wait)
		e, parked = answerOf(result, err), parkedOf(err)
	}()
	<-answered
	return e, parked
}

const scope = "operations"

func hashOf(key string) idem.Hash { return idem.HashBytes([]byte(key)) }

// begin starts the operation in a transaction, and leaves it to a Worker.
func (c *caller) begin(ctx context.Context, pool *pgxpool.Pool, key string) journal.Event {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return answerOf(idem.Result{}, err)
	}
	defer tx.Rollback(context.Background())
	id, err := c.checkout.Start(ctx, tx, scope, key, hashOf(key), journal.PlanOf(c.seed, key))
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return answerOf(idem.Result{}, err)
	}
	return journal.Event{Outcome: history.InProgress, Operation: id}
}

// answerOf turns what a call returned into what is written of it.
func answerOf(result idem.Result, err error) journal.Event {
	e := journal.Event{Outcome: outcomeOf(result, err), Operation: result.OperationID, Rejected: result.Rejected}
	if err != nil {
		e.Err = err.Error()
	}
	if parked := parkedOf(err); parked != nil {
		e.Parked, e.Operation = true, parked.OperationID
	}
	if e.Outcome.Answered() {
		e.Answer = new(journal.Answer)
		_ = json.Unmarshal(result.Body, e.Answer) // the checker finds out if it does not
	}
	return e
}

func outcomeOf(result idem.Result, err error) history.Outcome {
	switch {
	case err == nil && result.Replayed:
		return history.Replayed
	case err == nil:
		return history.Executed
	case errors.Is(err, errFinal), errors.Is(err, operation.ErrCancelled):
		return history.Undone
	case errors.Is(err, errFlaky):
		return history.FnFailed
	case errors.Is(err, idem.ErrOutcomeUnknown):
		return history.Unknown
	case errors.Is(err, idem.ErrInProgress):
		return history.InProgress
	case errors.Is(err, context.DeadlineExceeded):
		return history.Cancelled
	}
	return history.Failed
}
