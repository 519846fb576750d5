package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
)

// fate is what one transaction came to.
type fate int

const (
	fateFailed  fate = iota // rolled back; the error is the answer
	fateAgain               // rolled back, nothing of it remains, and it is worth running again
	fateUnknown             // COMMIT was sent and not acknowledged
	fateBusy                // another transaction holds the key
	fateFree                // the key could be claimed, and was let go
	fateLive                // a live record holds the answer
	fateDone                // fn ran and its effect is committed, or its rejection is
)

// attempt runs one transaction: claim the key, and if it is ours run fn, record its response and commit. It returns when
// the connection is back in the pool, or on its way there.
func (c *call) attempt(ctx context.Context) (record, fate, error) {
	t, r, fate, err := c.open(ctx)
	if fate != fateFree {
		return r, fate, err
	}
	defer t.abandon()
	c.flight.markBusy()
	c.attempts++
	t.guard = guardTx{Tx: txOf(t.conn), turn: &t.turn}
	resp, err := c.runFn(t.conn, &t.guard)
	if err == nil {
		return t.complete(ctx, r, resp, completed)
	}
	if rejected, ok := errors.AsType[*rejection](err); ok {
		return t.reject(ctx, rejected.response)
	}
	return record{}, againIf(rerunnable(err) && !errors.Is(err, ErrTxEnded)), err
}

// probe finds out what became of a transaction whose COMMIT was not acknowledged: it makes the same claim. A record with
// our operation id says that it was committed. A claim that succeeds says that it was not and never will be, because the
// transaction that held the key is over. A busy key says that it is still under way.
func (c *call) probe(ctx context.Context) (record, fate, error) {
	t, r, fate, err := c.open(ctx)
	if fate == fateFree {
		t.abandon()
	}
	return r, fate, err
}

// open begins a transaction and claims the key in it: one round trip. With fateFree the transaction is open, the key is
// ours and the caller must abandon or complete it; with any other fate the connection has been given back.
func (c *call) open(ctx context.Context) (*transaction, record, fate, error) {
	conn, err := c.acquire(ctx)
	if err != nil {
		return nil, record{}, againIf(transient(err)), err
	}
	t := &transaction{call: c, pooled: conn, conn: conn.Conn(), turn: turn{operationID: c.operationID}}
	r, err := t.claim(ctx)
	if err != nil {
		t.abandonAfter(err)
		return nil, r, againIf(rerunnable(err) || staleStatement(err) || t.conn.IsClosed()), hint(err)
	}
	if r.claimed {
		return t, r, fateFree, nil
	}
	go t.abandon() // the answer is known: nobody needs to wait for the rollback of nothing
	if !r.found {
		return nil, r, fateBusy, nil
	}
	return nil, r, fateLive, nil
}

func againIf(again bool) fate {
	if again {
		return fateAgain
	}
	return fateFailed
}

// acquire takes a connection from the pool. The wait for one is bounded even if the caller's context is not: a Do inside
// the fn of another Do, on a pool that is used up, would wait for itself.
func (c *call) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	bounded, cancel := context.WithTimeout(ctx, c.limits.acquire)
	defer cancel()
	conn, err := c.pool.Acquire(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("idem: no connection became free within %v; inside fn use DoTx, not Do: %w", c.limits.acquire, err)
	}
	return conn, err
}

// transaction is the one transaction of an attempt, on a connection of the pool.
type transaction struct {
	call   *call
	pooled *pgxpool.Conn
	conn   *pgx.Conn
	turn   turn
	guard  guardTx
}

// claim sends BEGIN, claim and load in one round trip and returns the live record: ours, another's, or none if the key is
// busy.
func (t *transaction) claim(ctx context.Context) (record, error) {
	if err := prepare(ctx, t.conn); err != nil {
		return record{}, err
	}
	trip := newTrip(t.conn)
	trip.command(beginSQL(t.call.txOptions))
	t.call.addClaim(ctx, trip)
	trip.send(ctx)
	trip.skip()
	r := t.call.readClaim(trip)
	return r, trip.end()
}

// runFn gives the transaction to fn for as long as fn runs. It returns fn's error, or the one that follows from the state
// in which fn left the transaction.
func (c *call) runFn(conn *pgx.Conn, guard *guardTx) (Response, error) {
	resp, err := c.fn(guard)
	idle := guard.turn.end()
	open := !conn.IsClosed() && !conn.PgConn().IsBusy()
	switch {
	case idle && open && conn.PgConn().TxStatus() == 'I' && err != nil:
		return resp, fmt.Errorf("%w: a statement of fn did; and fn failed: %w", ErrTxEnded, err)
	case err != nil:
		return resp, err
	}
	return resp, fnLeft(conn, guard.turn, idle)
}

// fnLeft tells in which state fn, which returned no error, left the transaction: nil if it can be completed.
func fnLeft(conn *pgx.Conn, turn *turn, idle bool) error {
	switch {
	case turn.endedByFn.Load():
		return fmt.Errorf("%w: it called Commit or Rollback on the tx", ErrTxEnded)
	case !idle:
		return fmt.Errorf("%w: a goroutine of fn is still using the tx", ErrTxAborted)
	case conn.IsClosed():
		return fmt.Errorf("%w: its connection was lost", ErrTxAborted)
	case conn.PgConn().IsBusy():
		return fmt.Errorf("%w: rows or batch results were left open", ErrTxAborted)
	}
	switch conn.PgConn().TxStatus() {
	case 'T':
		return nil
	case 'E':
		return fmt.Errorf("%w: fn ignored the error of a statement", ErrTxAborted)
	default:
		return fmt.Errorf("%w: a statement of fn did", ErrTxEnded)
	}
}

// complete records the response and commits, in one round trip. From here on the end of the caller's context does not
// undo anything: a COMMIT that was sent is waited for.
func (t *transaction) complete(ctx context.Context, r record, resp Response, state db.IdemRecordState) (record, fate, error) {
	header, err := checkResponse(resp, t.call.maxResponse)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return record{}, fateFailed, err
	}
	r.response = resp.normal()
	r.state = state

	outlasting, cancel := outlast(ctx, t.call.limits.commit)
	defer cancel()
	trip := newTrip(t.conn)
	t.call.addComplete(outlasting, trip, r.response, header, state, false)
	trip.command(t.commitSQL())
	trip.send(outlasting)
	t.call.readComplete(trip, &r)
	recorded := trip.err == nil
	tag := trip.skip()
	err = trip.end()
	switch {
	case err == nil && tag.String() == "COMMIT":
		t.release()
		return r, fateDone, nil
	case err == nil: // ROLLBACK: the transaction had been aborted without our knowing
		return record{}, fateFailed, fmt.Errorf("%w: %w", ErrTxAborted, pgx.ErrTxCommitRollback)
	}
	t.abandonAfter(err)
	return record{}, commitFate(err), commitError(err, recorded)
}

func (t *transaction) commitSQL() string {
	if own := t.call.txOptions.CommitQuery; own != "" {
		return own
	}
	return "commit"
}

// commitFate tells what an error in the last round trip means. An ordinary error of the server means that nothing was
// committed. Anything else says nothing about the COMMIT: the server reports a session that it ends, or even its own crash,
// after the commit has become durable. pgconn.SafeToRetry is no help: of a connection that broke while the answers of a
// batch were read it says that nothing was sent (pgx 5.12).
func commitFate(err error) fate {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && !fatal(pgErr) {
		return againIf(rerunnable(err) || staleStatement(err))
	}
	return fateUnknown
}

// commitError names the one error of the last round trip that is fn's doing: the record was not there to be completed.
func commitError(err error, recorded bool) error {
	if !recorded && hasCode(err, divisionByZero) {
		return fmt.Errorf("%w: the claimed record is gone or belongs to another transaction", ErrTxEnded)
	}
	return hint(err)
}

// reject undoes what fn did and records its answer in a second transaction. In between the key is free: if somebody else
// executes it, their outcome stands.
func (t *transaction) reject(ctx context.Context, resp Response) (record, fate, error) {
	if _, err := checkResponse(resp, t.call.maxResponse); err != nil {
		return record{}, fateFailed, err
	}
	t.abandon()
	again, r, fate, err := t.call.open(ctx)
	if fate != fateFree {
		return r, fate, err
	}
	defer again.abandon()
	return again.complete(ctx, r, resp, failed)
}

// abandon rolls back and gives the connection back. It does nothing to a transaction that was completed. A connection on
// which something is still running is closed, by the pool.
func (t *transaction) abandon() {
	if t.pooled == nil {
		return
	}
	t.turn.end() // fn may have panicked, or ended its goroutine
	if pg := t.conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		rollback(pg, t.call.limits.rollback)
	}
	t.release()
}

// abandonAfter abandons the transaction because of err, and the connection too if that is no longer what idem takes it for.
func (t *transaction) abandonAfter(err error) {
	if staleStatement(err) {
		ctx, cancel := context.WithTimeout(context.Background(), t.call.limits.rollback)
		defer cancel()
		_ = t.conn.Close(ctx)
	}
	t.abandon()
}

func (t *transaction) release() {
	t.pooled.Release()
	t.pooled = nil
}

// rollback ends the transaction, or the connection if that does not answer in time: a deadline on the socket costs less
// than a context. The caller's context may be over; the key must become free all the same.
func rollback(pg *pgconn.PgConn, limit time.Duration) {
	_ = pg.Conn().SetDeadline(time.Now().Add(limit))
	if pg.Exec(context.Background(), "rollback").Close() == nil {
		_ = pg.Conn().SetDeadline(time.Time{})
	}
}
