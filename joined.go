package idem

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
)

// The savepoints of a joined transaction. Rolling back to the first undoes the claim and gives its lock back, rolling back
// to the second undoes what fn did. Names may repeat: a DoTx inside a DoTx sees only its own.
const (
	savepointClaim   = "savepoint idem_claim"
	savepointFn      = "savepoint idem_fn"
	undoFn           = "rollback to savepoint idem_fn"
	undoClaim        = "rollback to savepoint idem_claim"
	releaseSavepoint = "release savepoint idem_claim"
)

// joined is a claim inside a transaction of the caller's. It talks to the connection below tx, as Do does, so that the
// savepoints cost no round trips of their own.
type joined struct {
	call *call
	tx   pgx.Tx
	conn *pgx.Conn
	open bool // the savepoints are there
}

// join runs the call inside tx.
func (c *call) join(ctx context.Context, tx pgx.Tx) (Result, error) {
	j := &joined{call: c, tx: tx, conn: tx.Conn()}
	if err := j.usable(); err != nil {
		return Result{}, err
	}
	defer j.undo() // if fn panics, or anything below fails
	r, err := j.claim(ctx)
	if err != nil {
		return Result{}, hint(err)
	}
	if !r.claimed {
		return j.leave(ctx, r)
	}
	c.attempts++
	guard := &guardTx{Tx: tx, turn: &turn{operationID: c.operationID}}
	defer guard.turn.end() // if fn panics
	resp, err := c.runFn(j.conn, guard)
	if err == nil {
		return j.complete(ctx, r, resp, completed)
	}
	if rejected, ok := errors.AsType[*rejection](err); ok {
		return j.reject(ctx, r, rejected.response)
	}
	return Result{}, err
}

func (j *joined) usable() error {
	switch {
	case j.conn == nil || j.conn.IsClosed():
		return fmt.Errorf("idem: DoTx: the transaction is over, or its connection: %w", pgx.ErrTxClosed)
	case j.conn.PgConn().IsBusy():
		return errors.New("idem: DoTx: the transaction has open rows; read or close them first")
	}
	switch j.conn.PgConn().TxStatus() {
	case 'T':
		return nil
	case 'E':
		return errors.New("idem: DoTx: the transaction is aborted by an earlier error; roll it back")
	default:
		return fmt.Errorf("idem: DoTx: the connection is in no transaction: %w", pgx.ErrTxClosed)
	}
}

// claim sends both savepoints, the claim and the load in one round trip. A connection that has not prepared the statements
// yet does that under the first savepoint, in trips of their own: if the schema is missing, tx must survive it.
func (j *joined) claim(ctx context.Context) (record, error) {
	if !prepared(j.conn) {
		if err := j.send(ctx, savepointClaim); err != nil {
			return record{}, err
		}
		j.open = true
		if err := prepare(ctx, j.conn); err != nil {
			return record{}, err
		}
	}
	trip := newTrip(j.conn)
	if !j.open {
		trip.command(savepointClaim)
	}
	j.call.addClaim(ctx, trip)
	trip.command(savepointFn)
	trip.send(ctx)
	if !j.open {
		trip.skip()
		j.open = trip.err == nil
	}
	r := j.call.readClaim(trip)
	return r, trip.end()
}

// leave answers a call that did not claim the key.
func (j *joined) leave(ctx context.Context, r record) (Result, error) {
	if err := j.send(ctx, releaseSavepoint); err != nil {
		return Result{}, err
	}
	j.open = false
	// A record in state processing is, as a rule, that of a DoTx or Do further up in the same transaction.
	if !r.found || r.sameHash && r.state == processing {
		return Result{}, j.call.inProgress()
	}
	return j.call.answer(r)
}

// complete records the response and releases the savepoints. If fn ended the transaction and began another, there is no
// savepoint to release.
func (j *joined) complete(ctx context.Context, r record, resp Response, state db.IdemRecordState) (Result, error) {
	header, err := checkResponse(resp, j.call.maxResponse)
	if err != nil {
		return Result{}, err
	}
	r.response, r.state = resp.normal(), state
	trip := newTrip(j.conn)
	j.call.addComplete(ctx, trip, r.response, header, state, true)
	trip.command(releaseSavepoint)
	trip.send(ctx)
	j.call.readComplete(trip, &r)
	if err := trip.end(); err != nil {
		return Result{}, j.endedError(err)
	}
	j.open = false
	return r.result(), nil
}

// reject undoes what fn did, keeping the claim, and records the answer.
func (j *joined) reject(ctx context.Context, r record, resp Response) (Result, error) {
	if j.conn.IsClosed() || j.conn.PgConn().IsBusy() {
		return Result{}, fmt.Errorf("%w: fn rejected, but its rows are open or its connection was lost", ErrTxAborted)
	}
	if err := j.send(ctx, undoFn); err != nil {
		return Result{}, j.endedError(err)
	}
	return j.complete(ctx, r, resp, failed)
}

// endedError recognises by its consequences that fn ended the transaction by a statement.
func (j *joined) endedError(err error) error {
	const noTransaction, noSavepoint = "25P01", "3B001"
	if hasCode(err, divisionByZero) || hasCode(err, noTransaction) || hasCode(err, noSavepoint) {
		return fmt.Errorf("%w: the claimed record or its savepoint is gone", ErrTxEnded)
	}
	return hint(err)
}

// undo takes the caller's transaction back to where DoTx found it, if the connection still allows.
func (j *joined) undo() {
	if !j.open {
		return
	}
	pg := j.conn.PgConn()
	if pg.IsClosed() {
		return
	}
	if pg.IsBusy() { // rows of fn that nobody can close for it: the transaction cannot be saved
		_ = j.conn.Close(context.Background())
		return
	}
	if pg.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.call.limits.rollback)
	defer cancel()
	if err := j.send(ctx, undoClaim, releaseSavepoint); err != nil {
		_ = j.conn.Close(context.Background())
	}
}

func (j *joined) send(ctx context.Context, commands ...string) error {
	trip := newTrip(j.conn)
	for _, command := range commands {
		trip.command(command)
	}
	trip.send(ctx)
	return trip.end()
}
