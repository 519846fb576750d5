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
	call  *call
	conn  *pgx.Conn
	guard guardTx
	turn  turn
	open  bool // the first savepoint is there
}

// join runs the call inside tx.
func (c *call) join(ctx context.Context, tx pgx.Tx) (Result, error) {
	// tx may itself be the tx of a fn: then this is a use of it.
	if outer, ok := tx.(*guardTx); ok {
		if !outer.turn.enter() {
			return Result{}, errTxClosed
		}
		defer outer.turn.leave()
	}
	conn, err := usable(ctx, tx)
	if err != nil {
		return Result{}, err
	}
	j := &joined{call: c, conn: conn, turn: turn{operationID: c.operationID}}
	j.guard = guardTx{Tx: tx, turn: &j.turn}
	defer func() { _ = j.undo(nil) }() // if fn panics; otherwise there is nothing left to undo
	result, err := j.run(ctx)
	if err != nil {
		return Result{}, j.undo(err)
	}
	return result, nil
}

func (j *joined) run(ctx context.Context) (Result, error) {
	r, err := j.claim(ctx)
	if err != nil {
		return Result{}, hint(err)
	}
	if !r.claimed {
		return j.leave(ctx, r)
	}
	j.call.attempts++
	resp, err := j.call.runFn(j.conn, &j.guard)
	if err == nil {
		return j.complete(ctx, r, resp, completed)
	}
	rejected, ok := errors.AsType[*rejection](err)
	if !ok || errors.Is(err, ErrTxEnded) {
		return Result{}, err
	}
	return j.reject(ctx, r, rejected.response)
}

var errTxClosed = fmt.Errorf("idem: DoTx: the transaction is over: %w", pgx.ErrTxClosed)

// usable returns the connection of a transaction that can be joined. A tx that is over must be found out through the tx
// itself: its connection may be in somebody else's transaction by then. An empty batch asks without a round trip.
func usable(ctx context.Context, tx pgx.Tx) (*pgx.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := tx.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
		return nil, fmt.Errorf("idem: DoTx: %w", err)
	}
	conn := tx.Conn()
	switch {
	case conn == nil || conn.IsClosed():
		return nil, errTxClosed
	case conn.PgConn().IsBusy():
		return nil, errors.New("idem: DoTx: the transaction has open rows; read or close them first")
	}
	switch conn.PgConn().TxStatus() {
	case 'T':
		return conn, nil
	case 'E':
		return nil, errors.New("idem: DoTx: the transaction is aborted by an earlier error; roll it back")
	default:
		return nil, errTxClosed
	}
}

// claim claims the key under the savepoints. A connection that has not prepared the statements yet does that under the
// first savepoint, in trips of their own: if the schema is missing, tx must survive it. If they turn out to be stale, they
// are prepared again.
func (j *joined) claim(ctx context.Context) (record, error) {
	if isCold(j.conn) {
		if err := j.prepare(ctx); err != nil {
			return record{}, err
		}
	}
	r, err := j.sendClaim(ctx)
	if !staleStatement(err) || !j.open {
		return r, err
	}
	if err := j.send(ctx, undoClaim); err != nil {
		return r, err
	}
	if err := forget(ctx, j.conn); err != nil {
		return r, err
	}
	if err := prepare(ctx, j.conn); err != nil {
		return r, err
	}
	return j.sendClaim(ctx)
}

func (j *joined) prepare(ctx context.Context) error {
	if err := j.send(ctx, savepointClaim); err != nil {
		return err
	}
	j.open = true
	return prepare(ctx, j.conn)
}

// sendClaim sends the savepoints, the claim and the load in one round trip.
func (j *joined) sendClaim(ctx context.Context) (record, error) {
	trip := newTrip(j.conn)
	first := !j.open
	if first {
		trip.command(savepointClaim)
	}
	j.call.addClaim(trip)
	trip.command(savepointFn)
	trip.send(ctx)
	if first {
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
	r.response, r.state = resp.normal(), state
	header, err := r.response.check(j.call.maxResponse)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Result{}, err
	}
	trip := newTrip(j.conn)
	j.call.addComplete(trip, r.response, header, state, true)
	trip.command(releaseSavepoint)
	trip.send(ctx)
	j.call.readComplete(trip, &r)
	if err := trip.end(); err != nil {
		return Result{}, endedError(err)
	}
	j.open = false
	return r.result(), nil
}

// reject undoes what fn did, keeping the claim, and records the answer.
func (j *joined) reject(ctx context.Context, r record, resp Response) (Result, error) {
	if err := unfit(j.conn); j.conn.IsClosed() || j.conn.PgConn().IsBusy() {
		return Result{}, err
	}
	if err := j.send(ctx, undoFn); err != nil {
		return Result{}, endedError(err)
	}
	return j.complete(ctx, r, resp, failed)
}

// endedError recognises by its consequences that fn ended the transaction by a statement.
func endedError(err error) error {
	if hasCode(err, divisionByZero) || lostSavepoint(err) {
		return ended("the claimed record or its savepoint is gone", nil)
	}
	return hint(err)
}

func lostSavepoint(err error) bool {
	const noTransaction, noSavepoint = "25P01", "3B001"
	return hasCode(err, noTransaction) || hasCode(err, noSavepoint)
}

// undo takes the caller's transaction back to where DoTx found it because of cause, and returns cause: or ErrTxEnded, if
// there is nowhere to go back to. A connection that cannot be brought back to a known state is closed.
func (j *joined) undo(cause error) error {
	if !j.open {
		return cause
	}
	j.open = false
	pg := j.conn.PgConn()
	switch {
	case !j.turn.end():
		_ = pg.Conn().Close() // a goroutine of fn is using it: the socket is all that may be touched
		return cause
	case pg.IsClosed():
		return cause
	case pg.IsBusy():
		_ = j.conn.Close(context.Background())
		return cause
	case pg.TxStatus() == 'I':
		return cause
	}
	var err error
	within(pg, j.call.limits.rollback, func(ctx context.Context) error {
		err = j.send(ctx, undoClaim, releaseSavepoint)
		if lostSavepoint(err) {
			return nil // answered: the connection is sound
		}
		return err
	})
	if lostSavepoint(err) && !errors.Is(cause, ErrTxEnded) {
		return ended("a statement of fn did, and began another", cause)
	}
	return cause
}

func (j *joined) send(ctx context.Context, commands ...string) error {
	trip := newTrip(j.conn)
	for _, command := range commands {
		trip.command(command)
	}
	trip.send(ctx)
	return trip.end()
}
