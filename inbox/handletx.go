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

// HandleTx is Handle inside a transaction that the caller already has: fn's writes and the memory of the message become part of tx
// and are committed, or not, with it. It does not wait for others, does not retry, and counts nothing: if fn fails, what it did is
// undone, tx is as usable as before, and the message is to be delivered again. An error of fn is returned, and is in the Outcome.
// A panic goes on. Nor does it make dead letters: a message whose id belongs to another payload is ErrMismatch and Retry, which Handle
// makes one of.
//
// The first 32 calls with one tx run under a savepoint each. After those, an fn that fails aborts tx.
//
// WithOrder, WithLanes, WithCircuit, WithTxOptions and WithRetries have no meaning here and are refused.
func HandleTx(ctx context.Context, tx pgx.Tx, consumer string, m Message, fn func(tx pgx.Tx) error, opts ...Option) (Outcome, error) {
	j := &joined{settings: newSettings(opts), delivery: &delivery{Message: m, hash: sha256.Sum256(m.Payload), twins: []int{0}}}
	began := time.Now()
	err := j.check(tx, consumer, fn)
	if err == nil {
		err = j.run(ctx, tx, consumer, fn)
	}
	o := j.delivery.outcome
	if j.observer != nil {
		data := TraceHandledData{Consumer: consumer, Messages: 1, Joined: true, Runs: j.runs, Duration: time.Since(began), Err: err, Cause: idem.CauseOf(err)}
		data.count([]Outcome{o})
		j.observer.TraceHandled(ctx, data)
	}
	return o, err
}

// joined is one HandleTx.
type joined struct {
	settings
	delivery *delivery
	part     *txn.Joined
	previous string // the claim that the transaction had made before
	runs     int
}

func (j *joined) check(tx pgx.Tx, consumer string, fn func(pgx.Tx) error) error {
	switch {
	case j.err != nil:
		return j.err
	case j.forPoolOnly != "":
		return errors.New("inbox: " + j.forPoolOnly + " has no meaning for HandleTx: the transaction is the caller's")
	case tx == nil:
		return errors.New("inbox: tx is nil")
	case fn == nil:
		return errors.New("inbox: fn is nil")
	}
	for what, name := range map[string]string{"the consumer": consumer, "the source of the message": j.delivery.Source, "the id of the message": j.delivery.ID} {
		if err := checkName(name); err != nil {
			return errors.Join(errors.New("inbox: "+what), err)
		}
	}
	return nil
}

func (j *joined) run(ctx context.Context, tx pgx.Tx, consumer string, fn func(pgx.Tx) error) error {
	part, err := txn.Join(ctx, tx, j.limits.txn)
	if err != nil {
		return err
	}
	defer part.Leave()
	j.part = part
	returned := false
	defer func() {
		if !returned { // fn has panicked
			_ = part.Undo(nil)
		}
	}()
	err = j.handle(ctx, consumer, fn)
	returned = true
	return err
}

func (j *joined) handle(ctx context.Context, consumer string, fn func(pgx.Tx) error) error {
	d := j.delivery
	claimed, err := j.claim(ctx, consumer)
	switch {
	case txn.LockTimedOut(err):
		d.putOff(j.minBackoff, ErrElsewhere)
		if !j.part.Saves() { // the server has aborted the transaction
			return ErrElsewhere
		}
		return j.part.Undo(nil)
	case err != nil:
		d.putOff(j.minBackoff, err)
		return j.part.Undo(hint(err))
	case !claimed:
		return j.part.Undo(mismatchOf(d.outcome))
	}
	j.runs++
	if _, err = j.part.Run("", func(tx pgx.Tx) (bool, error) {
		return false, j.settings.handle(ctx, consumer, []*delivery{d}, tx, fn)
	}); err == nil {
		err = j.part.Complete(ctx, db.Reclaim{ExecutionID: j.previous})
	}
	if err != nil {
		d.putOff(j.minBackoff, err)
		return j.part.Undo(err)
	}
	d.settle(Outcome{State: Done})
	return nil
}

// mismatchOf returns the error of an outcome that is not to be overlooked.
func mismatchOf(o Outcome) error {
	if errors.Is(o.Err, ErrMismatch) {
		return o.Err
	}
	return nil
}

// claim writes the message down as handled, or settles the outcome of it.
func (j *joined) claim(ctx context.Context, consumer string) (claimed bool, err error) {
	d := j.delivery
	group := db.NewMessages(consumer, 1, func(int) (db.MessageID, [32]byte) { return d.id(), d.hash })
	begin := &db.BeginMessages{ExecutionID: newExecutionID(), Patience: patienceJoined}
	claim := &db.ClaimMessages{Messages: group, Retention: j.retention}
	if err := j.part.Open(ctx, db.MessageStatements, begin, claim, db.Calm{}); err != nil {
		return false, err
	}
	j.previous = begin.Previous
	if len(claim.Rows) == 1 {
		return true, nil
	}
	load := db.LoadMessages{Messages: group}
	if err := j.part.Ask(ctx, &load); err != nil {
		return false, err
	}
	if len(load.Rows) == 0 {
		d.putOff(j.minBackoff, ErrElsewhere)
		return false, nil
	}
	due, mismatch := d.learn(&load.Rows[0])
	if mismatch != nil {
		d.settle(Outcome{State: Retry, RetryAt: time.Now().Add(j.minBackoff), Err: mismatch}) // Handle makes a dead letter of it
	}
	if !due {
		return false, nil
	}
	resume := &db.ResumeMessages{Messages: group, Retention: j.retention}
	again := &db.BeginMessages{ExecutionID: begin.ExecutionID, Patience: patienceJoined}
	if err := j.part.Ask(ctx, again, resume, db.Calm{}); err != nil {
		return false, err
	}
	if len(resume.Rows) == 0 {
		d.putOff(j.minBackoff, ErrElsewhere)
	}
	return len(resume.Rows) == 1, nil
}

// patienceJoined is how long HandleTx waits for a consumer that has the message: it lets a purge pass.
const patienceJoined = 20 * time.Millisecond
