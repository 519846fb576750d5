package inbox

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

var prepared = txn.WithOwn(db.MessageStatements)

// handler is what handles messages: one by one, or all together.
type handler struct {
	each func(tx pgx.Tx, m Message) error
	all  func(tx pgx.Tx, ms []Message) error
}

// attempt is one transaction that handles a group of messages, no two of which have one id.
type attempt struct {
	settings    *settings
	engine      *txn.Engine
	consumer    string
	executionID string
	patience    time.Duration
	handler     handler
	group       []*delivery

	tx      *txn.Tx
	byID    map[db.MessageID]*delivery
	claimed []*delivery // in the order of their delivery
	refused []refusal   // messages that are never to be handled
	runs    int
	given   int  // how many of the claimed ones a handler was given
	lost    bool // the connection, when the last handler was through
	kept    bool // the transaction was the one that has claimed, ahead of a COMMIT that the server refused
	idle    bool // the connection was in no transaction then: the last handler has ended it
}

// refusal is a message that is to be a dead letter without an attempt.
type refusal struct {
	delivery *delivery
	err      error
}

// run claims, handles and commits. Whatever happens to it, the outcome of a message that is not to be handled is settled.
func (a *attempt) run(ctx context.Context) ending {
	if err := a.claim(ctx); err != nil {
		if a.tx != nil {
			a.tx.CloseAfter(err)
		}
		return ending{kind: judgeDatabase(ctx, err), err: err}
	}
	if len(a.claimed) == 0 {
		go a.tx.Close() // no caller needs to wait for the rollback of nothing
		return ending{kind: through}
	}
	defer a.tx.Close()
	if a.settings.ordered && a.overtakes() {
		return ending{kind: again, err: ErrBehind}
	}
	if e := a.handle(ctx); e.kind != through {
		a.tx.CloseAfter(e.err)
		return e
	}
	return a.commit(ctx)
}

// claim begins the transaction and writes the messages down as handled: one round trip, if all of them are new.
func (a *attempt) claim(ctx context.Context) error {
	a.byID = make(map[db.MessageID]*delivery, len(a.group))
	for _, d := range a.group {
		d.reopen()
		a.byID[d.id()] = d
	}
	begin := a.begin()
	begin.Owned = true
	claim := db.ClaimMessages{Messages: a.messages(a.group), Retention: a.settings.retention}
	resume := db.ResumeMessages{Messages: claim.Messages, Retention: claim.Retention}
	var first txn.Request = &claim
	if a.group[0].announced { // it is alone, and has its row
		first = &resume
	}
	var err error
	a.tx, err = a.engine.Open(ctx, begin, first, db.Calm{})
	if err != nil {
		return err
	}
	a.take(claim.Rows)
	a.take(resume.Rows)
	if len(claim.Rows)+len(resume.Rows) < len(a.group) {
		err = a.lookUp(ctx)
	}
	for _, d := range a.group {
		if d.state == claimed {
			a.claimed = append(a.claimed, d)
		}
	}
	return err
}

func (a *attempt) begin() *db.BeginMessages {
	return &db.BeginMessages{ExecutionID: a.executionID, Patience: a.patience}
}

func (a *attempt) messages(group []*delivery) *db.Messages {
	return db.NewMessages(a.consumer, len(group), func(i int) (db.MessageID, [32]byte) { return group[i].id(), group[i].hash })
}

func (a *attempt) take(messages []db.ClaimedMessage) {
	for i := range messages {
		a.byID[messages[i].MessageID].claim(messages[i].Since)
	}
}

// lookUp finds out about what was not claimed, and claims of that what is to be tried again. A message of which nothing is known
// either, because the consumer that had it has rolled back meanwhile, stays as it is.
func (a *attempt) lookUp(ctx context.Context) error {
	var rest, due []*delivery
	for _, d := range a.group {
		if d.state != claimed {
			rest = append(rest, d)
		}
	}
	load := db.LoadMessages{Messages: a.messages(rest)}
	if err := a.tx.Ask(ctx, &load); err != nil {
		return err
	}
	for i := range load.Rows {
		if d := a.byID[load.Rows[i].MessageID]; a.learn(d, &load.Rows[i]) {
			due = append(due, d)
		}
	}
	if len(due) == 0 {
		return nil
	}
	resume := db.ResumeMessages{Messages: a.messages(due), Retention: a.settings.retention}
	if err := a.tx.Ask(ctx, a.begin(), &resume, db.Calm{}); err != nil {
		return err
	}
	a.take(resume.Rows)
	return nil
}

// learn settles a message by what is stored about it. It reports whether the message is due for an attempt.
func (a *attempt) learn(d *delivery, k *db.KnownMessage) (due bool) {
	due, mismatch := d.learn(k)
	if mismatch != nil {
		a.refused = append(a.refused, refusal{d, mismatch})
	}
	return due
}

// overtakes reports whether the attempt has claimed a message while one of its key that comes before it is not to be handled now.
func (a *attempt) overtakes() bool {
	behind := map[keyOf]bool{}
	for _, d := range a.group {
		key, ok := d.key()
		switch {
		case !ok:
		case d.state == claimed && behind[key]:
			return true
		case d.state != claimed && (!d.isSettled() || d.outcome.State == Retry):
			behind[key] = true
		}
	}
	return false
}

// handle gives the transaction to the handler, in a goroutine of its own: one that ends its goroutine is found out by that. A handler
// that finds its connection lost, or its statements discarded, need not be the one that did it: that may have been one before.
func (a *attempt) handle(ctx context.Context) (e ending) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		returned := false
		defer func() {
			if returned {
				return
			}
			e.kind, e.err = failed, errExited
			if value := recover(); value != nil {
				e.err = &PanicError{Value: value, Stack: debug.Stack()}
			}
		}()
		if a.handler.all != nil {
			a.handleAll(ctx, &e)
		} else {
			a.handleEach(ctx, &e)
		}
		returned = true
	}()
	<-over
	if inherited := a.lost && e.kind != ended || txn.Discarded(e.err); inherited && e.culprit != a.claimed[0] {
		e.culprit = nil
	}
	return e
}

func (a *attempt) handleEach(ctx context.Context, e *ending) {
	for i, d := range a.claimed {
		if err := ctx.Err(); err != nil {
			*e = ending{kind: stopped, err: err}
			return
		}
		e.culprit = d
		a.give(ctx, e, a.claimed[i:i+1], func(tx pgx.Tx) error { return a.handler.each(tx, d.Message) })
		if e.err != nil {
			return
		}
	}
	e.culprit = nil
}

func (a *attempt) handleAll(ctx context.Context, e *ending) {
	messages := make([]Message, len(a.claimed))
	for i, d := range a.claimed {
		messages[i] = d.Message
	}
	a.give(ctx, e, a.claimed, func(tx pgx.Tx) error { return a.handler.all(tx, messages) })
}

// give gives the transaction to a function that handles these, and judges how it went.
func (a *attempt) give(ctx context.Context, e *ending, group []*delivery, fn func(tx pgx.Tx) error) {
	a.runs++
	a.given += len(group)
	_, err := a.tx.Run("", func(tx pgx.Tx) (bool, error) {
		defer func() { // also if the handler panics
			conn := tx.Conn()
			a.lost = conn == nil || conn.IsClosed()
			a.idle = conn != nil && conn.PgConn().TxStatus() == 'I'
		}()
		return false, a.settings.handle(ctx, a.consumer, group, tx, fn)
	})
	if err != nil {
		e.kind, e.err = judge(ctx, err, a.lost), err
	}
}

// commit commits what was handled, together with the memory of it.
func (a *attempt) commit(ctx context.Context) ending {
	keep := db.KeepMessages{ExecutionID: a.executionID}
	err := a.tx.Commit(ctx, &keep)
	var unacknowledged *txn.UnknownError
	switch {
	case err == nil:
		for _, d := range a.claimed {
			d.settle(Outcome{State: Done})
		}
		return ending{kind: through}
	case errors.As(err, &unacknowledged):
		for _, d := range a.claimed {
			d.state = unclear
		}
		if ctx.Err() != nil {
			return ending{kind: stopped, err: err, unacknowledged: true}
		}
		if txn.TooSlow(err) { // as it would be again
			return ending{kind: failed, err: err, unacknowledged: true}
		}
		return ending{kind: again, err: err, unacknowledged: true}
	case txn.HasCode(err, db.Gone) && !keep.Found:
		return ending{kind: ended, err: txn.Ended("a statement of the handler did, and began another", nil)}
	}
	a.kept = keep.Found
	a.tx.CloseAfter(err)
	return ending{kind: judge(ctx, err, false), err: err}
}

// A handler can commit its transaction by a statement, and begin another one that looks the same. Then every message that the
// attempt has claimed is stored as handled, also those whose handler has not run, or has run in a transaction that was rolled
// back. So after an attempt that has failed in any way, the record is read before anything is made of its error.

// enders returns the messages whose handlers may have committed the transaction, and those before them, whose effects are
// committed. The last handler did it if its connection was left without a transaction, or if it was the only one. Otherwise it
// may be any that has run, and the effects of those behind it are lost. Messages that no handler was given are in neither list.
func (a *attempt) enders() (handled, suspects []*delivery) {
	first := 0
	if a.idle && a.handler.each != nil {
		first = a.given - 1
	}
	return a.claimed[:first], a.claimed[first:a.given]
}

// committed reads the record to learn whether the transaction was committed. One of its messages is enough to tell.
func (a *attempt) committed(ctx context.Context) (bool, error) {
	load := db.LoadMessages{}
	err := a.insist(ctx, func(ctx context.Context) error {
		load = db.LoadMessages{Messages: a.messages(a.claimed[:1])}
		return a.engine.Query(ctx, &load)
	})
	for i := range load.Rows {
		k := &load.Rows[i]
		if k.State == db.MessageHandled && k.Since.Equal(a.byID[k.MessageID].since) {
			return true, err
		}
	}
	return false, err
}

// release deletes the rows of messages that were claimed and not handled.
func (a *attempt) release(ctx context.Context, group []*delivery) error {
	var at []time.Time
	for _, d := range group {
		if !slices.Contains(at, d.since) {
			at = append(at, d.since)
		}
	}
	return a.insist(ctx, func(ctx context.Context) error {
		for _, t := range at {
			if err := a.engine.Query(ctx, db.ReleaseMessages{Messages: a.messages(group), ClaimedAt: t}); err != nil {
				return err
			}
		}
		return nil
	})
}

// insist asks the database for as long as it asks for the outcome of a COMMIT, also after the end of ctx: giving up would lose
// messages.
func (a *attempt) insist(ctx context.Context, ask func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.settings.limits.resolve)
	defer cancel()
	return insist(bounded, ask)
}

// insist asks the database until it answers, or ctx ends.
func insist(ctx context.Context, ask func(context.Context) error) error {
	for pause := txn.RetryPause; ; {
		err := ask(ctx)
		if err == nil || !txn.Transient(err) || txn.Sleep(ctx, pause.Next()) != nil {
			return err
		}
	}
}
