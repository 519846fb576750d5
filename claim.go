package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
	"github.com/idem-go/idem/internal/txn"
)

// The statements that a connection prepares before its first call: for Do, for Do with WithWait(0),
// and for operations.
var (
	prepared          = txn.WithOwn(db.Statements)
	preparedAtOnce    = txn.WithOwn(db.StatementsAtOnce)
	preparedOperation = txn.WithOwn(append(append(db.Statements[:3:3], db.StatementsAtOnce[0]), db.OperationStatements...))
)

// finding is the result of a claim.
type finding int

const (
	claimed  finding = iota // the key is claimed, and the transaction is open
	answered                // the key has a record, such as the response of another execution
	held                    // another transaction holds the key
	running                 // an operation in progress holds the key, also between its transactions
)

// ending is the result of an execution.
type ending int

const (
	failed     ending = iota // rolled back; the call returns the error
	rolledBack               // rolled back because of an error after which the call may run again
	rejecting                // rolled back; the rejection must be recorded in another transaction
	recorded                 // the record is committed
	unknown                  // COMMIT was not acknowledged
	inProgress               // another transaction or process holds the key: wait and claim again
	lookAgain                // the state of the key has changed: claim again at once
)

// work is what a call does once it has claimed its key: it runs the fn of Do, or an operation.
type work interface {
	// statements returns the statements that a connection has to prepare. atOnce is true for a call
	// that does not wait for a key in progress.
	statements(atOnce bool) []*roundtrip.Statement
	// afterClaim returns requests to send behind the claim, in the same round trip.
	afterClaim() []txn.Request
	// begin does the work in the transaction that has claimed the key, and ends the transaction.
	begin(ctx context.Context, x *execution) (ending, error)
	// resume continues the operation that holds the key.
	resume(ctx context.Context, x *execution) (ending, error)
	// endedMeanwhile reports whether the operation that this call waited for has ended in an error
	// and has released its key. The call must then return the error that endedMeanwhile returns.
	// The parameter found is the latest finding of the call.
	endedMeanwhile(ctx context.Context, x *execution, found finding) (error, bool)
	// isOperation reports whether the work may hold its key across several transactions.
	isOperation() bool
}

// execution is the part of a call that uses the database: it claims the key, lets the work run and
// records the response.
type execution struct {
	engine      txn.Engine
	key         db.Key
	work        work
	maxResponse int
	sealer      Sealer        // nil to store responses unencrypted
	wait        time.Duration // the value of WithWait; if zero, the claim does not wait for locks either
	trace       *trace

	tx        *txn.Tx
	claiming  db.Claim
	loading   db.Load
	record    db.Record // loaded or just written
	claimedAt time.Time // when the key was claimed, by the clock of the database
	askedAt   time.Time // when the last statement on the record was sent, by the clock of this process
	previous  string    // the execution id of an earlier claim in the caller's transaction, such as that of an outer call
	rejection *Response // a rejection that is not recorded yet
	sent      *Response // the response that was sent with the latest COMMIT, if any
}

// loadOnly loads the record without claiming the key, in one statement outside a transaction. It
// reports whether the record has a response.
func (x *execution) loadOnly(ctx context.Context) (found bool, err error) {
	x.loading = db.Load{Key: &x.key}
	x.askedAt = time.Now()
	engine := x.engine
	engine.Asker = nil // otherwise followers would conclude that the leader has a connection for its claim
	if err := engine.Query(ctx, &x.loading); err != nil {
		return false, hint(err)
	}
	x.record = x.loading.Record
	return x.loading.Found && !x.loading.Expired() && x.record.State != db.Running, nil
}

// claimUnless claims the key. If known is true, the call already knows the operation that it has to
// resume, and claimUnless only returns running.
func (x *execution) claimUnless(ctx context.Context, known bool) (finding, error) {
	if known {
		return running, nil
	}
	return x.claim(ctx)
}

// claim begins a transaction and claims the key in it. It takes one round trip, or two if it takes
// over an expired record. The transaction stays open only if the finding is claimed.
func (x *execution) claim(ctx context.Context) (finding, error) {
	x.claiming = db.Claim{Key: &x.key, AtOnce: x.wait == 0}
	x.loading = db.Load{Key: &x.key}
	x.engine.BeginTimeout = x.claimTimeout()
	x.askedAt = time.Now()
	requests := append([]txn.Request{&x.claiming, &x.loading}, x.work.afterClaim()...)
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
		go tx.Close() // the call need not wait for this rollback
	}
	return found, nil
}

// find returns the finding of the latest claim and load, whose answers have arrived. If the record
// has expired, find claims the key by taking over the record. It calls ask for that, which makes
// another round trip in the same transaction.
func (x *execution) find(ctx context.Context, ask func(context.Context, ...txn.Request) error) (finding, error) {
	ours, createdAt, previous := x.claiming.Claimed, x.claiming.CreatedAt, x.claiming.Previous
	if !ours && x.loading.Expired() {
		takeover := db.TakeOver{Key: &x.key}
		x.loading = db.Load{Key: &x.key}
		requests := []txn.Request{&takeover, &x.loading}
		if x.claiming.AtOnce {
			requests = []txn.Request{db.Calm{}, &takeover, &x.loading}
		}
		if err := ask(ctx, append(requests, x.work.afterClaim()...)...); err != nil {
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

// freshUntil returns when the record expires, by the clock of this process. It adds the remaining
// lifetime of the record to askedAt. The database read or wrote the record after askedAt, so the
// result is never after the real expiry, even if the two clocks differ.
func (x *execution) freshUntil(r *db.Record) time.Time {
	seen := r.CompletedAt
	if r.LoadedAt.After(seen) {
		seen = r.LoadedAt
	}
	return x.askedAt.Add(r.ExpiresAt.Sub(seen))
}

// claimTimeout returns how long the claim may wait for a lock on the record, such as the lock of a
// DELETE. The timeout is the rest of WithWait, but at least a second, because a slow server must
// not look like a key in progress. With WithWait(0), claimTimeout returns zero for no timeout,
// because the claim then sets lock_timeout itself.
func (x *execution) claimTimeout() time.Duration {
	if x.wait == 0 {
		return 0
	}
	return max(x.wait-time.Since(x.trace.started), time.Second)
}

// heldIfLocked returns the result of a claim that failed with err. If err means that another
// transaction has locked the record, the result is the finding held without an error.
func heldIfLocked(err error) (finding, error) {
	if txn.LockTimedOut(err) || errors.Is(err, txn.ErrBlocked) {
		return held, nil
	}
	return held, hint(err)
}
