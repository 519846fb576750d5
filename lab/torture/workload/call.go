package workload

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
)

// call is one call of the library.
type call struct {
	*plan
	op      history.Op
	shard   uint8
	history *history.Writer
	runs    int // of fn
	inBatch bool

	endContext context.CancelFunc
}

// make makes the call, and writes down when it began, and when and how it ended. It returns to its caller even if fn
// panics or ends its goroutine.
func (c *call) make() history.Outcome {
	c.history.Append(history.Event{Shard: c.shard, At: history.Now(), Kind: history.KindCall, Op: c.op, Call: c.call()})
	ended := make(chan *history.Return, 1)
	go func() {
		answer := &history.Return{Outcome: history.Panicked}
		defer func() {
			if r := recover(); r != nil && r != any(errDeliberate) {
				panic(r)
			}
			ended <- answer
		}()
		ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
		defer cancel()
		c.endContext = cancel
		answer = c.ask(ctx)
	}()
	answer := <-ended
	c.history.Append(history.Event{Shard: c.shard, At: history.Now(), Kind: history.KindReturn, Op: c.op, Return: answer})
	return answer.Outcome
}

func (c *call) ask(ctx context.Context) *history.Return {
	fn := func(tx pgx.Tx) (idem.Response, error) { return c.do(ctx, tx) }
	switch c.verb {
	case history.DoTx:
		return c.join(ctx, fn)
	case history.DoJSON:
		return c.askJSON(ctx, fn)
	}
	return answerOf(idem.Do(ctx, c.pool.Pool, c.scope, c.key, c.hash(), fn, c.options()...))
}

// askJSON takes the value for what was answered: its encoding has to be the body of the response.
func (c *call) askJSON(ctx context.Context, fn func(pgx.Tx) (idem.Response, error)) *history.Return {
	value, result, err := idem.DoJSON(ctx, c.pool.Pool, c.scope, c.key, c.hash(), func(tx pgx.Tx) (Answer, error) {
		resp, err := fn(tx)
		if err != nil {
			return Answer{}, err
		}
		return decode(resp.Body)
	}, c.options()...)
	if err == nil && !result.Rejected {
		result.Body = value.encode()
	}
	return answerOf(result, err)
}

// join makes the call inside a transaction of its own.
func (c *call) join(ctx context.Context, fn func(pgx.Tx) (idem.Response, error)) *history.Return {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return answerOf(idem.Result{}, err)
	}
	defer conn.Release() // not before commit is done with it
	tx, err := conn.BeginTx(ctx, c.txOptions)
	if err != nil {
		return answerOf(idem.Result{}, err)
	}
	defer tx.Rollback(context.Background()) // also if fn panics
	answer, goesOn := c.within(ctx, tx, fn)
	if goesOn {
		return afterOwnCommit(answer, commit(ctx, tx))
	}
	return undone(answer)
}

// within makes the call inside a transaction, which writes something itself before and after. It reports whether its caller
// wants to go on with the transaction, and can.
func (c *call) within(ctx context.Context, tx pgx.Tx, fn func(pgx.Tx) (idem.Response, error)) (answer *history.Return, goesOn bool) {
	outer := ledger.Outer{Op: c.op, Scope: c.scope, Key: c.key, Part: ledger.PartBefore}
	if err := outer.Write(ctx, tx); err != nil {
		return answerOf(idem.Result{}, err), false
	}
	result, err := idem.DoTx(ctx, tx, c.scope, c.key, c.hash(), fn, c.options()...)
	answer = answerOf(result, err)
	if c.rollsBack(answer) {
		return answer, false
	}
	outer.Part = partOf(answer)
	if err := outer.Write(ctx, tx); err != nil {
		return afterOwnCommit(answer, err), false
	}
	return answer, true
}

// rollsBack reports whether the caller of DoTx rolls back after this answer. One of a batch does so only after a failure.
func (c *call) rollsBack(answer *history.Return) bool {
	if answer.Outcome == history.Ended {
		return true
	}
	if failed := !answer.Outcome.Answered(); failed || !c.inBatch {
		return c.keepOn != failed
	}
	return false
}

// undone is the outcome of a DoTx whose caller has rolled back.
func undone(answer *history.Return) *history.Return {
	if answer.Outcome == history.Executed {
		answer.Outcome = history.Undone
	}
	return answer
}

// partOf says what DoTx answered.
func partOf(answer *history.Return) string {
	switch {
	case answer.Outcome == history.Executed && answer.Rejected:
		return ledger.PartRejected
	case answer.Outcome.Answered():
		return string(answer.Outcome)
	}
	return ledger.PartRefused
}

// afterOwnCommit is the outcome of a DoTx whose caller has tried to commit.
func afterOwnCommit(answer *history.Return, err error) *history.Return {
	if err == nil || answer.Outcome != history.Executed {
		return answer
	}
	failed := answerOf(idem.Result{}, err)
	if maybeCommitted(err) {
		failed.Outcome = history.Unknown
	}
	failed.ExecutionID = answer.ExecutionID
	return failed
}
