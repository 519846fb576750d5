package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// attempt is one transaction that handles a group of messages with distinct IDs.
type attempt struct {
	*consumer
	group    []*delivery
	lockWait time.Duration

	executionID string
	byID        map[db.MessageID]*delivery
	tx          *txn.Tx
	ask         func(ctx context.Context, requests ...txn.Request) error // sends statements in the transaction
	claimed     []*delivery                                              // in the order of the group
	refused     []refusal
	runs        int // number of calls of the handler
	given       int // number of claimed messages that were passed to the handler

	// The state of the connection after the last run of the handler.
	connLost bool
	noTx     bool // no transaction is open: the handler has ended the one of the attempt

	// intact is true if the server refused COMMIT although the transaction was still the one that had
	// claimed the messages.
	intact bool
}

func newAttempt(c *consumer, group []*delivery, lockWait time.Duration) *attempt {
	return &attempt{consumer: c, group: group, lockWait: lockWait, executionID: newExecutionID(), byID: byID(group)}
}

// refusal is a message that becomes a dead letter without an attempt.
type refusal struct {
	delivery *delivery
	err      error
}

// run claims the messages, calls the handler and commits. It settles the committed messages, which
// means that it sets their outcomes. It also settles messages whose outcome is already stored.
func (a *attempt) run(ctx context.Context) result {
	if err := a.claim(ctx); err != nil {
		if a.tx != nil {
			a.tx.CloseAfter(err)
		}
		return result{kind: kindOfDatabaseError(ctx, err), err: err}
	}
	if len(a.claimed) == 0 {
		go a.tx.Close() // the caller need not wait for this rollback
		return result{kind: handled}
	}
	defer a.tx.Close()
	if a.ordered && a.overtakes() {
		return result{kind: rerun, err: ErrBehind}
	}
	if r := a.handle(ctx); r.kind != handled {
		a.tx.CloseAfter(r.err)
		return r
	}
	return a.commit(ctx)
}

// claim begins the transaction and inserts a row with the state handled for each message. That
// takes one round trip if all messages are new. Otherwise claim reads the existing rows, and claims
// the messages whose next attempt is due.
func (a *attempt) claim(ctx context.Context) error {
	for _, d := range a.group {
		if d.state == claimed { // claimed by an earlier attempt
			d.state = untried
		}
	}
	begin := a.begin()
	begin.Owned = true
	claim := db.ClaimMessages{Messages: a.messages(a.group), Retention: a.retention}
	resume := db.ResumeMessages{Messages: claim.Messages, Retention: claim.Retention}
	var first txn.Request = &claim
	if a.group[0].announced { // the attempt is counted already: the message is alone in its group and has a row
		first = &resume
	}
	var err error
	if a.tx, err = a.attempts.Open(ctx, begin, first, db.Calm{}); err != nil {
		return err
	}
	a.ask = a.tx.Ask
	a.take(claim.Rows)
	a.take(resume.Rows)
	if len(claim.Rows)+len(resume.Rows) < len(a.group) {
		err = a.claimDue(ctx)
	}
	for _, d := range a.group {
		if d.state == claimed {
			a.claimed = append(a.claimed, d)
		}
	}
	return err
}

func (a *attempt) begin() *db.BeginMessages {
	return &db.BeginMessages{ExecutionID: a.executionID, Patience: a.lockWait}
}

func (a *attempt) take(rows []db.ClaimedMessage) {
	for i := range rows {
		a.byID[rows[i].MessageID].claim(rows[i].Since)
	}
}

// claimDue reads the rows of the messages that are not claimed. It claims the messages whose next
// attempt is due, and settles the others. A message without a row stays unsettled: another process
// had inserted the row, and has rolled it back meanwhile.
func (a *attempt) claimDue(ctx context.Context) error {
	var unclaimed, due []*delivery
	for _, d := range a.group {
		if d.state != claimed {
			unclaimed = append(unclaimed, d)
		}
	}
	load := db.LoadMessages{Messages: a.messages(unclaimed)}
	if err := a.ask(ctx, &load); err != nil {
		return err
	}
	for i := range load.Rows {
		d := a.byID[load.Rows[i].MessageID]
		isDue, mismatch := d.apply(&load.Rows[i])
		switch {
		case mismatch != nil:
			a.refused = append(a.refused, refusal{d, mismatch})
		case isDue:
			due = append(due, d)
		}
	}
	if len(due) == 0 {
		return nil
	}
	resume := db.ResumeMessages{Messages: a.messages(due), Retention: a.retention}
	if err := a.ask(ctx, a.begin(), &resume, db.Calm{}); err != nil {
		return err
	}
	a.take(resume.Rows)
	return nil
}

// overtakes reports whether a claimed message would be handled before an earlier message of its
// key. That earlier message is in the group, still has to be handled, and is not claimed.
func (a *attempt) overtakes() bool {
	blocked := map[orderKey]bool{}
	for _, d := range a.group {
		key, ok := d.orderKey()
		switch {
		case !ok:
		case d.state == claimed && blocked[key]:
			return true
		case d.state != claimed && (!d.isSettled() || d.outcome.State == Retry):
			blocked[key] = true
		}
	}
	return false
}

// handle calls the handler in a separate goroutine, to notice if the handler ends its goroutine. If
// a handler finds the connection closed or prepared statements deallocated, an earlier handler of
// the group may have caused that. Then the result names no message.
func (a *attempt) handle(ctx context.Context) (r result) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if returned {
				return
			}
			r.kind, r.err = failed, errExited
			if value := recover(); value != nil {
				r.err = &PanicError{Value: value, Stack: debug.Stack()}
			}
		}()
		a.callHandler(ctx, &r)
		returned = true
	}()
	<-done
	if inherited := a.connLost && r.kind != txEnded || txn.Discarded(r.err); inherited && r.message != a.claimed[0] {
		r.message = nil
	}
	return r
}

// callHandler calls the handler for each claimed message, or once for all of them with Bulk, until
// it fails.
func (a *attempt) callHandler(ctx context.Context, r *result) {
	messages := make([]Message, len(a.claimed))
	for i, d := range a.claimed {
		messages[i] = d.Message
	}
	if a.handler.bulk {
		a.give(ctx, r, a.claimed, messages)
		return
	}
	for i, d := range a.claimed {
		if err := ctx.Err(); err != nil {
			*r = result{kind: stopped, err: err}
			return
		}
		r.message = d
		if a.give(ctx, r, a.claimed[i:i+1], messages[i:i+1]); r.err != nil {
			return
		}
	}
	r.message = nil
}

// give calls the handler once, with the given messages.
func (a *attempt) give(ctx context.Context, r *result, group []*delivery, messages []Message) {
	a.runs++
	a.given += len(group)
	_, err := a.tx.Run("", func(tx pgx.Tx) (bool, error) {
		defer func() { // also if the handler panics
			conn := tx.Conn()
			a.connLost = conn == nil || conn.IsClosed()
			a.noTx = conn != nil && conn.PgConn().TxStatus() == 'I'
		}()
		return false, a.runHandler(ctx, group, tx, func(tx pgx.Tx) error { return a.handler.fn(tx, messages) })
	})
	if err != nil {
		r.kind, r.err = kindOfHandlerError(ctx, err, a.connLost), err
	}
}

// commit commits the rows of the claimed messages together with the writes of the handler.
func (a *attempt) commit(ctx context.Context) result {
	keep := db.KeepMessages{ExecutionID: a.executionID}
	err := a.tx.Commit(ctx, &keep)
	var unknown *txn.UnknownError
	switch {
	case err == nil:
		a.settleDone(a.claimed)
		return result{kind: handled}
	case errors.As(err, &unknown):
		for _, d := range a.claimed {
			d.state = inDoubt
		}
		r := result{kind: rerun, err: err, inDoubt: true}
		if ctx.Err() != nil {
			r.kind = stopped
		} else if txn.TooSlow(err) { // another run would be too slow as well
			r.kind = failed
		}
		return r
	case txn.HasCode(err, db.Gone) && !keep.Found:
		return result{kind: txEnded, err: txn.Ended("a statement of the handler did, and began another", nil)}
	}
	a.intact = keep.Found
	a.tx.CloseAfter(err)
	return result{kind: kindOfHandlerError(ctx, err, false), err: err}
}

func (a *attempt) settleDone(group []*delivery) {
	for _, d := range group {
		d.settle(Outcome{State: Done})
	}
}

// committers is called if a handler has committed the transaction by a SQL statement. The list
// suspects has the messages whose handler may have done so. If only one handler has run, or no
// transaction is open after the last one, this is the last message. Otherwise these are all
// messages whose handler has run. The list done has the messages before the suspects: the COMMIT
// included their effects. Messages that no handler has received are in neither list.
func (a *attempt) committers() (done, suspects []*delivery) {
	first := 0
	if a.noTx && !a.handler.bulk {
		first = a.given - 1
	}
	return a.claimed[:first], a.claimed[first:a.given]
}

// committed reads the row of one message to learn whether the transaction was committed. It retries
// for some time even if ctx has ended, because giving up would lose messages.
func (a *attempt) committed(ctx context.Context) (committed bool, err error) {
	ctx, cancel := outlive(ctx, a.limits.resolve)
	defer cancel()
	d := a.claimed[0]
	var rows []db.KnownMessage
	err = retry(ctx, func() (err error) {
		rows, err = a.stored(ctx, []*delivery{d})
		return err
	})
	return len(rows) == 1 && rows[0].State == db.MessageHandled && rows[0].Since.Equal(d.since), err
}

// release deletes the rows of messages that were claimed and not handled. It does so even if ctx
// has ended.
func (a *attempt) release(ctx context.Context, group []*delivery) error {
	ctx, cancel := outlive(ctx, a.limits.resolve)
	defer cancel()
	var since []time.Time // the times of the claims: messages that had failed before were claimed by another statement
	for _, d := range group {
		if !slices.Contains(since, d.since) {
			since = append(since, d.since)
		}
	}
	return retry(ctx, func() error {
		for _, t := range since {
			if err := a.engine.Query(ctx, db.ReleaseMessages{Messages: a.messages(group), ClaimedAt: t}); err != nil {
				return err
			}
		}
		return nil
	})
}

func newExecutionID() string {
	id := pgtype.UUID{Valid: true}
	rand.Read(id.Bytes[:])
	id.Bytes[6] = id.Bytes[6]&0x0f | 0x40
	id.Bytes[8] = id.Bytes[8]&0x3f | 0x80
	return id.String()
}
