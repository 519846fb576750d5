package workload

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
)

// call is one call of the library.
type call struct {
	*plan
	op      history.Op
	history *history.Writer
	runs    int // number of runs of fn so far
	inBatch bool

	endContext context.CancelFunc
}

// make executes the call and records when it began, when it ended, and its outcome. The call runs
// in a goroutine of its own, so that make returns even if fn panics or calls runtime.Goexit.
func (c *call) make() history.Outcome {
	c.history.Append(history.Event{At: history.Now(), Kind: history.KindCall, Op: c.op, Call: c.call()})
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
	c.history.Append(history.Event{At: history.Now(), Kind: history.KindReturn, Op: c.op, Return: answer})
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
	return answerOf(idem.Do(ctx, c.pool, c.scope, c.key, c.hash(), fn, c.options()...))
}

// askJSON calls DoJSON. It encodes the returned value again and uses the encoding as the body of
// the response, so that the checker finds any difference between the value and the committed body.
func (c *call) askJSON(ctx context.Context, fn func(pgx.Tx) (idem.Response, error)) *history.Return {
	value, result, err := idem.DoJSON(ctx, c.pool, c.scope, c.key, c.hash(), func(tx pgx.Tx) (Answer, error) {
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

// join calls DoTx in a new transaction, and commits or rolls back.
func (c *call) join(ctx context.Context, fn func(pgx.Tx) (idem.Response, error)) *history.Return {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return answerOf(idem.Result{}, err)
	}
	defer conn.Release() // the deferred Release runs after commit has returned
	tx, err := conn.BeginTx(ctx, c.txOptions)
	if err != nil {
		return answerOf(idem.Result{}, err)
	}
	defer tx.Rollback(context.Background()) // fn may panic
	answer, goesOn := c.within(ctx, tx, fn)
	if goesOn {
		return afterOwnCommit(answer, commit(ctx, tx))
	}
	return undone(answer)
}

// within calls DoTx in a transaction and writes rows of the caller before and after it. It returns
// whether the caller should commit: false if the caller decides to roll back, or if a write failed.
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

// rollsBack reports whether the caller of DoTx rolls back after this answer. Normally the caller
// does so only after a failure. With keepOn, the caller does so only after a success, or, in a
// batch, never. After ErrTxEnded, the caller always rolls back.
func (c *call) rollsBack(answer *history.Return) bool {
	if answer.Outcome == history.Ended {
		return true
	}
	if failed := !answer.Outcome.Answered(); failed || !c.inBatch {
		return c.keepOn != failed
	}
	return false
}

// undone turns the answer of a DoTx into its outcome after the caller rolled back.
func undone(answer *history.Return) *history.Return {
	if answer.Outcome == history.Executed {
		answer.Outcome = history.Undone
	}
	return answer
}

func partOf(answer *history.Return) string {
	switch {
	case answer.Outcome == history.Executed && answer.Rejected:
		return ledger.PartRejected
	case answer.Outcome.Answered():
		return string(answer.Outcome)
	}
	return ledger.PartRefused
}

// afterOwnCommit turns the answer of a DoTx into its outcome after the COMMIT of the caller, which
// returned err.
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

// commit commits a transaction of the worker itself, and makes sure that the COMMIT is never
// canceled.
//
// When the context ends, pgx sends a CancelRequest. A COMMIT that waits for a standby then stops
// waiting: other sessions see its writes, although a failover would lose them, and the checker
// would attribute that to the library. The server ignores a CancelRequest with a wrong secret, so
// the secret is inverted during the COMMIT.
func commit(ctx context.Context, tx pgx.Tx) error {
	conn := tx.Conn().PgConn()
	invert(conn.SecretKey())
	err := tx.Commit(ctx)
	if !conn.IsClosed() {
		invert(conn.SecretKey())
	}
	return err
}

func invert(secret []byte) {
	for i := range secret {
		secret[i] = ^secret[i]
	}
}

// batch is a number of calls of DoTx in one transaction. Their answers become true when the
// transaction commits, so the history gives all of them the beginning and the end of the batch.
type batch []*call

// make executes the calls and records when the batch began, when it ended, and the outcomes.
func (b batch) make() history.Outcome {
	begun := history.Now()
	for _, c := range b {
		c.inBatch = true
		c.history.Append(history.Event{At: begun, Kind: history.KindCall, Op: c.op, Call: c.call()})
	}
	last := b[len(b)-1]
	ctx, cancel := context.WithTimeout(context.Background(), last.timeout)
	defer cancel()
	answers := b.ask(ctx, last)
	ended := history.Now()
	for i, c := range b {
		c.history.Append(history.Event{At: ended, Kind: history.KindReturn, Op: c.op, Return: answers[i]})
	}
	return answers[len(b)-1].Outcome
}

// ask executes the calls in one transaction and returns their outcomes. After a failed call, the
// caller may decide not to continue. The transaction is then rolled back, and the later calls are
// not made.
func (b batch) ask(ctx context.Context, last *call) []*history.Return {
	answers := make([]*history.Return, len(b))
	for i := range b {
		answers[i] = &history.Return{Outcome: history.Failed}
	}
	conn, err := last.pool.Acquire(ctx)
	if err != nil {
		return answers
	}
	defer conn.Release() // the deferred Release runs after commit has returned
	tx, err := conn.BeginTx(ctx, last.txOptions)
	if err != nil {
		return answers
	}
	defer tx.Rollback(context.Background())
	goesOn := true
	for i, c := range b {
		if !goesOn {
			break
		}
		answers[i], goesOn = c.within(ctx, tx, func(tx pgx.Tx) (idem.Response, error) { return c.do(ctx, tx) })
	}
	if goesOn {
		err = commit(ctx, tx)
	}
	for i, answer := range answers {
		if goesOn {
			answers[i] = afterOwnCommit(answer, err)
		} else {
			answers[i] = undone(answer)
		}
	}
	return answers
}

// answerOf converts the results of a call into its return event.
func answerOf(result idem.Result, err error) *history.Return {
	answer := &history.Return{Outcome: outcomeOf(result, err)}
	if err != nil {
		answer.Err = err.Error()
	}
	if mismatch, ok := errors.AsType[*idem.MismatchError](err); ok {
		answer.Created = mismatch.CreatedAt.UnixMicro()
	}
	if unknown, ok := errors.AsType[*idem.OutcomeUnknownError](err); ok {
		answer.ExecutionID = unknown.ExecutionID
	}
	if !answer.Outcome.Answered() {
		return answer
	}
	body, _ := decode(result.Body) // the checker notices a body that cannot be decoded
	answer.Rejected, answer.ExecutionID = result.Rejected, result.ExecutionID
	answer.Digest, answer.Maker = ledger.Digest(result.Response), body.Maker
	answer.Created, answer.Completed, answer.Expires =
		result.CreatedAt.UnixMicro(), result.CompletedAt.UnixMicro(), result.ExpiresAt.UnixMicro()
	return answer
}

func outcomeOf(result idem.Result, err error) history.Outcome {
	switch {
	case err == nil && result.Replayed:
		return history.Replayed
	case err == nil:
		return history.Executed
	}
	for _, known := range []struct {
		err     error
		outcome history.Outcome
	}{
		{idem.ErrOutcomeUnknown, history.Unknown}, {idem.ErrTxEnded, history.Ended}, {idem.ErrMismatch, history.Mismatch},
		{idem.ErrInProgress, history.InProgress}, {idem.ErrTxAborted, history.Aborted}, {idem.ErrResponseTooLarge, history.TooLarge},
		{idem.ErrUnreadable, history.Unreadable},
		{errDeliberate, history.FnFailed}, {context.DeadlineExceeded, history.Cancelled}, {context.Canceled, history.Cancelled},
	} {
		if errors.Is(err, known.err) {
			return known.outcome
		}
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (pgErr.Code == "40001" || pgErr.Code == "40P01") {
		return history.Conflict
	}
	return history.Failed
}

// maybeCommitted reports whether a COMMIT of the worker that returned err may have been executed.
func maybeCommitted(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return false
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || pgErr.Severity == "FATAL" || pgErr.Severity == "PANIC"
}
