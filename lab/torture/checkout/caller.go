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
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// caller makes one call after the other.
type caller struct {
	*shop
	seed  uint64
	start time.Duration
	keys  int
	life  time.Duration
	pools []*pgxpool.Pool
}

// key returns a random key. Keys change with time; a third of the calls use a key that may be
// older.
func (c *caller) key() string {
	age := int((history.Now() - c.start) / c.life)
	if rand.IntN(3) == 0 {
		age -= rand.IntN(6)
	}
	return fmt.Sprintf("key-%d-%d", max(age, 0), rand.IntN(c.keys))
}

// call makes one call. For a WalkIn it repeats short calls until one is answered.
func (c *caller) call() history.Outcome {
	verb, key := journal.Do, c.key()
	plan := journal.PlanOf(c.seed, key)
	if plan.WalkIn {
		return c.insist(&plan)
	}
	if rand.IntN(5) == 0 {
		verb = journal.Start
	}
	return c.once(verb, &plan, c.patience())
}

// insist makes up to 30 calls that end long before the bank has answered, until one is answered.
func (c *caller) insist(plan *journal.Plan) (outcome history.Outcome) {
	const most = 30
	for range most {
		patience := time.Duration(40+rand.IntN(40)) * time.Millisecond
		if outcome = c.once(journal.Do, plan, patience); outcome.Answered() || outcome == history.Failed {
			break
		}
	}
	return outcome
}

// patience returns the timeout of a call.
func (c *caller) patience() time.Duration {
	if rand.IntN(4) == 0 { // the caller leaves early
		return time.Duration(rand.IntN(100)) * time.Millisecond
	}
	return time.Duration(rand.IntN(4000)) * time.Millisecond
}

// once makes one call and logs when it began, when it ended, and its outcome.
func (c *caller) once(verb string, plan *journal.Plan, patience time.Duration) history.Outcome {
	name, key := c.next(), plan.Key
	c.note(journal.Event{Kind: journal.KindCall, Op: name, Verb: verb, Key: key})
	e, parked := c.ask(name, verb, plan, patience)
	e.Kind, e.Op, e.Verb, e.Key = journal.KindReturn, name, verb, key
	c.note(e)
	c.meddle(c.pool, &e, parked)
	return e.Outcome
}

// callName is the context key under which a call carries its history.Op.
type callName struct{}

// ask makes the call. It uses a goroutine of its own because the function may panic.
func (c *caller) ask(name history.Op, verb string, plan *journal.Plan, patience time.Duration) (e journal.Event, parked *operation.ParkedError) {
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), callName{}, name), patience)
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
			e = c.begin(ctx, pool, plan)
			return
		}
		wait := idem.WithWait(time.Duration(rand.IntN(3)) * 500 * time.Millisecond)
		result, err := c.definitionOf(plan).Do(ctx, pool, scope, plan.Key, hashOf(plan.Key), *plan, wait, idem.WithObserver(watch{c.shop}))
		e, parked = answerOf(result, err), parkedOf(err)
	}()
	<-answered
	return e, parked
}

const scope = "operations"

func hashOf(key string) idem.Hash { return idem.HashBytes([]byte(key)) }

// begin starts the operation in a transaction and leaves its execution to a Worker.
func (c *caller) begin(ctx context.Context, pool *pgxpool.Pool, plan *journal.Plan) journal.Event {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return answerOf(idem.Result{}, err)
	}
	defer tx.Rollback(context.Background())
	id, err := c.definitionOf(plan).Start(ctx, tx, scope, plan.Key, hashOf(plan.Key), *plan)
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return answerOf(idem.Result{}, err)
	}
	return journal.Event{Outcome: history.InProgress, Operation: id}
}

// answerOf converts the results of a call into its return event.
func answerOf(result idem.Result, err error) journal.Event {
	e := journal.Event{Outcome: outcomeOf(result, err), Operation: result.ExecutionID, Rejected: result.Rejected}
	if err != nil {
		e.Err = err.Error()
	}
	if parked := parkedOf(err); parked != nil {
		e.Parked, e.Operation = true, parked.OperationID
	}
	if e.Outcome.Answered() {
		e.Answer = new(journal.Answer)
		_ = json.Unmarshal(result.Body, e.Answer) // the checker notices an empty answer
	}
	return e
}

func outcomeOf(result idem.Result, err error) history.Outcome {
	switch {
	case err == nil && result.Replayed:
		return history.Replayed
	case err == nil:
		return history.Executed
	case operation.IsFinal(err), errors.Is(err, operation.ErrCanceled):
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
