package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// HandleTx handles a message as Handle does, but in the caller's transaction. The writes of fn and
// the ID of the message are committed or rolled back with tx. HandleTx does not retry, does not
// wait for other processes, counts no attempt, and makes no dead letters. If fn fails, HandleTx
// undoes the writes of fn and returns the error of fn; tx stays usable, and the Outcome is Retry. A
// panic of fn propagates. If the ID belongs to another payload, HandleTx returns ErrMismatch. The
// Outcome is then Retry, so that a later call of Handle can make the message a dead letter.
//
// Each of the first 32 calls with the same tx runs under a savepoint. Later calls have none, so if
// fn fails in a later call, tx is aborted.
//
// HandleTx returns an error for the options WithOrder, WithLanes, WithCircuit, WithTxOptions and
// WithRetries.
func HandleTx(ctx context.Context, tx pgx.Tx, consumer string, m Message, fn func(tx pgx.Tx) error, opts ...Option) (Outcome, error) {
	j := &joined{
		consumer: newConsumer(nil, consumer, handler{}, opts),
		delivery: &delivery{Message: m, hash: sha256.Sum256(m.Payload), positions: []int{0}},
	}
	began := time.Now()
	err := j.check(tx, fn)
	if err == nil {
		err = j.run(ctx, tx, fn)
	}
	o := j.delivery.outcome
	if j.observer != nil {
		data := TraceHandledData{Consumer: consumer, Messages: 1, Joined: true, Runs: j.runs, Duration: time.Since(began), Err: err, Cause: idem.CauseOf(err)}
		data.count([]Outcome{o})
		j.observer.TraceHandled(ctx, data)
	}
	return o, err
}

// joined is one call of HandleTx.
type joined struct {
	*consumer
	delivery *delivery
	part     *txn.Joined
	previous string // the execution ID that was set in tx before this call
	runs     int
}

func (j *joined) check(tx pgx.Tx, fn func(pgx.Tx) error) error {
	switch {
	case j.err != nil:
		return j.err
	case j.forPoolOnly != "":
		return errors.New("inbox: HandleTx does not support " + j.forPoolOnly + ", because the transaction belongs to the caller; leave the option out")
	case tx == nil:
		return errors.New("inbox: tx is nil; pass a transaction")
	case fn == nil:
		return errNoFn
	}
	return errors.Join(checkName("consumer", j.name), checkName("source of the message", j.delivery.Source),
		checkName("ID of the message", j.delivery.ID))
}

func (j *joined) run(ctx context.Context, tx pgx.Tx, fn func(pgx.Tx) error) error {
	part, err := txn.Join(ctx, tx, j.limits.txn)
	if err != nil {
		return err
	}
	defer part.Leave()
	j.part = part
	returned := false
	defer func() {
		if !returned { // fn panicked
			_ = part.Undo(nil)
		}
	}()
	err = j.handle(ctx, fn)
	returned = true
	return err
}

func (j *joined) handle(ctx context.Context, fn func(pgx.Tx) error) error {
	d := j.delivery
	claimed, err := j.claim(ctx)
	switch {
	case txn.LockTimedOut(err):
		j.retry(ErrElsewhere)
		if !j.part.Saves() { // there is no savepoint: the server has aborted the transaction
			return ErrElsewhere
		}
		return j.part.Undo(nil)
	case err != nil:
		j.retry(err)
		return j.part.Undo(hint(err))
	case !claimed:
		return j.part.Undo(mismatchOf(d.outcome))
	}
	j.runs++
	if _, err = j.part.Run("", func(tx pgx.Tx) (bool, error) {
		return false, j.runHandler(ctx, []*delivery{d}, tx, fn)
	}); err == nil {
		err = j.part.Complete(ctx, db.Reclaim{ExecutionID: j.previous})
	}
	if err != nil {
		j.retry(err)
		return j.part.Undo(err)
	}
	d.settle(Outcome{State: Done})
	return nil
}

func (j *joined) retry(err error) { j.delivery.retryAfter(j.minBackoff, err) }

// claim inserts the row of the message with the state handled. If there is nothing to handle now,
// claim settles the delivery and returns false.
func (j *joined) claim(ctx context.Context) (claimed bool, err error) {
	// A purge may lock the row for a moment. This wait is long enough for it.
	const lockWait = 20 * time.Millisecond
	a := newAttempt(j.consumer, []*delivery{j.delivery}, lockWait)
	a.ask = j.part.Ask
	begin := a.begin()
	claim := &db.ClaimMessages{Messages: a.messages(a.group), Retention: j.retention}
	if err := j.part.Open(ctx, db.MessageStatements, begin, claim, db.Calm{}); err != nil {
		return false, err
	}
	j.previous = begin.Previous
	if a.take(claim.Rows); len(claim.Rows) == 0 {
		err = a.claimDue(ctx)
	}
	switch {
	case err != nil:
		return false, err
	case len(a.refused) > 0:
		j.retry(a.refused[0].err)
	case j.delivery.state == untried:
		j.retry(ErrElsewhere)
	}
	return !j.delivery.isSettled(), nil
}
