package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

var (
	prepared       = txn.WithOwn(db.Statements)
	preparedAtOnce = txn.WithOwn(db.StatementsAtOnce)
	preparedHeld   = txn.WithOwn(append(append(db.Statements[:3:3], db.StatementsAtOnce[0]), db.OperationStatements...))
)

// finding is what a claim finds.
type finding int

const (
	claimed  finding = iota // nothing: the key is ours, and the transaction is open
	answered                // a live record, with the answer
	held                    // another transaction, which holds the key
	running                 // the record of an operation, which holds the key between its transactions
)

// ending is what the transaction that ran fn came to.
type ending int

const (
	failed    ending = iota // rolled back; the error is the answer
	undone                  // rolled back, for a reason that makes it worth another run
	rejecting               // rolled back; the rejection is to be recorded by another claim
	recorded                // the outcome is on record
	unknown                 // COMMIT was sent and not acknowledged
	elsewhere               // nothing: the key is to be waited for
	holding                 // the key has to be looked at again, at once: it is an operation's, or was
)

// work is what a call does once it has its key: the fn of Do, or an operation.
type work interface {
	// prepared are the statements that a connection is to know.
	prepared(atOnce bool) []*roundtrip.Statement
	// behindClaim are requests that travel behind the claim.
	behindClaim() []txn.Request
	// begin works in the transaction of the claim.
	begin(ctx context.Context, x *execution) (ending, error)
	// resume goes on with an operation that has the key.
	resume(ctx context.Context, x *execution) (ending, error)
	// waited returns the error of an operation that the call has waited for, and that has ended in it. What the call has found since is
	// another's.
	waited(ctx context.Context, x *execution, found finding) (error, bool)
	// outlasts reports whether the work goes on behind its transaction, and is then shared with the duplicates that have waited for it.
	outlasts() bool
}

// execution is the part of a call that talks to the database: it claims the key, has the work done and records its response.
type execution struct {
	engine      txn.Engine
	key         db.Key
	work        work
	maxResponse int
	sealer      Sealer        // nil to store responses plain
	wait        time.Duration // for the call that holds the key; zero is to claim at once or not at all
	trace       *trace

	tx        *txn.Tx
	claiming  db.Claim
	loading   db.Load
	record    db.Record // found, or just written
	claimedAt time.Time // by the clock of the database
	askedAt   time.Time // by the clock of this process: before the record was read, or written, for the last time
	previous  string    // the execution id of the claim that the transaction had made before, if it is a caller's
	rejection *Response // the final answer of a fn whose writes are undone, to be recorded
	sent      *Response // what the latest COMMIT was to record, nil if it was to record no response
}

// ask looks for an answer without claiming the key: one statement, outside of any transaction.
func (x *execution) ask(ctx context.Context) (found bool, err error) {
	x.loading = db.Load{Key: &x.key}
	x.askedAt = time.Now()
	engine := x.engine
	engine.Asker = nil // the leader is not past the pool: it may need another connection to claim
	if err := engine.Query(ctx, &x.loading); err != nil {
		return false, hint(err)
	}
	x.record = x.loading.Record
	return x.loading.Found && !x.loading.Expired() && x.record.State != db.Running, nil
}

// claim begins a transaction and claims the key in it: one round trip, or two if it takes over an expired record. After any
// finding but claimed, and after an error, the connection has been given back.
func (x *execution) claim(ctx context.Context) (finding, error) {
	x.claiming = db.Claim{Key: &x.key, AtOnce: x.wait == 0}
	x.loading = db.Load{Key: &x.key}
	x.engine.Patience = x.patience()
	x.askedAt = time.Now()
	requests := append([]txn.Request{&x.claiming, &x.loading}, x.work.behindClaim()...)
	tx, err := x.engine.Open(ctx, requests...)
	if err != nil {
		return heldIfLocked(err)
	}
	found, err := x.find(ctx, tx.Ask)
	switch {
	case err != nil:
		tx.CloseAfter(err)
		return heldIfLocked(err)
	case found == claimed:
		x.tx = tx
	default:
		go tx.Close() // the answer is known: no caller needs to wait for the rollback of nothing
	}
	return found, nil
}

// find tells what a claim and the load behind it have found. An expired record is taken over, for which ask makes another
// round trip in the same transaction.
func (x *execution) find(ctx context.Context, ask func(context.Context, ...txn.Request) error) (finding, error) {
	ours, createdAt, previous := x.claiming.Claimed, x.claiming.CreatedAt, x.claiming.Previous
	if !ours && x.loading.Expired() {
		takeover := db.TakeOver{Key: &x.key}
		x.loading = db.Load{Key: &x.key}
		requests := []txn.Request{&takeover, &x.loading}
		if x.claiming.AtOnce {
			requests = []txn.Request{db.Calm{}, &takeover, &x.loading}
		}
		if err := ask(ctx, append(requests, x.work.behindClaim()...)...); err != nil {
			return held, err
		}
		ours, createdAt, previous = takeover.Found, takeover.CreatedAt, takeover.Previous
	}
	switch {
	case ours:
		x.claimedAt, x.previous = createdAt, previous
		return claimed, nil
	case !x.loading.Found || x.loading.Expired():
		return held, nil
	}
	x.record = x.loading.Record
	if x.record.State == db.Running && x.record.SameHash {
		return running, nil
	}
	return answered, nil
}

// freshUntil returns when the record expires, by the clock of this process: as long after askedAt as it had to live when the
// database read or wrote it, which was later. So it is never too late, however the two clocks differ.
func (x *execution) freshUntil(r *db.Record) time.Time {
	seen := r.CompletedAt
	if r.LoadedAt.After(seen) {
		seen = r.LoadedAt
	}
	return x.askedAt.Add(r.ExpiresAt.Sub(seen))
}

// patience is how long a claim may be held up by SQL that has a lock on the record. The server bounds that if the claim is
// at once. Otherwise it is the wait that is left, and not so little that a busy server is taken for a held key.
func (x *execution) patience() time.Duration {
	if x.wait == 0 {
		return 0
	}
	return max(x.wait-time.Since(x.trace.started), time.Second)
}

// heldIfLocked makes a finding of an error that says that another transaction holds a lock on the record.
func heldIfLocked(err error) (finding, error) {
	if txn.LockTimedOut(err) || errors.Is(err, txn.ErrBlocked) {
		return held, nil
	}
	return held, hint(err)
}
