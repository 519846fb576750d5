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
	fateDead                // the connection was lost before fn ran: as a rule, long before, in the pool
	fateUnknown             // COMMIT was sent and not acknowledged
	fateBusy                // another transaction holds the key
	fateFree                // the key could be claimed, and was let go
	fateLive                // a live record holds the answer
	fateDone                // fn ran and its effect is committed, or its rejection is
)

func againIf(again bool) fate {
	if again {
		return fateAgain
	}
	return fateFailed
}

// transaction is the one transaction of an attempt, on a connection of the pool.
type transaction struct {
	call   *call
	pooled *pgxpool.Conn
	conn   *pgx.Conn
	turn   turn
	guard  guardTx
}

// attempt runs one transaction: claim the key, and if it is ours run fn, record its response and commit. It returns when
// the connection is back in the pool, or on its way there.
func (c *call) attempt(ctx context.Context) (record, fate, error) {
	t, r, fate, err := c.open(ctx)
	if fate != fateFree {
		return r, fate, err
	}
	defer t.abandon(nil)
	c.claimedAt = r.createdAt
	c.flight.markBusy()
	c.attempts++
	t.guard = guardTx{Tx: txOf(t.conn), turn: &t.turn}
	resp, err := c.runFn(t.conn, &t.guard)
	if err == nil {
		return t.complete(ctx, r, resp, completed)
	}
	return t.fail(ctx, err)
}

// probe finds out what became of a transaction whose COMMIT was not acknowledged: it makes the same claim. A record with
// our operation id says that it was committed. A claim that succeeds says that it was not and never will be, because the
// transaction that held the key is over. A busy key says that it is still under way.
func (c *call) probe(ctx context.Context) (record, fate, error) {
	t, r, fate, err := c.open(ctx)
	if fate == fateFree {
		t.abandon(nil)
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
		lost := t.conn.IsClosed() // the connection is another's once it is given back
		t.abandon(err)
		if lost {
			return nil, r, fateDead, err
		}
		return nil, r, againIf(rerunnable(err) || staleStatement(err)), hint(err)
	}
	if r.claimed {
		return t, r, fateFree, nil
	}
	go t.abandon(nil) // the answer is known: nobody needs to wait for the rollback of nothing
	if !r.found {
		return nil, r, fateBusy, nil
	}
	return nil, r, fateLive, nil
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

// claim sends BEGIN, claim and load in one round trip and returns the live record: ours, another's, or none if the key is
// busy.
func (t *transaction) claim(ctx context.Context) (record, error) {
	if err := prepare(ctx, t.conn); err != nil {
		return record{}, err
	}
	trip := newTrip(t.conn)
	trip.command(beginSQL(t.call.txOptions))
	t.call.addClaim(trip)
	trip.send(ctx)
	trip.skip()
	r := t.call.readClaim(trip)
	return r, trip.end()
}

// complete records the response and commits, in one round trip. From here on the end of the caller's context does not
// undo anything: a COMMIT that was sent is waited for.
func (t *transaction) complete(ctx context.Context, r record, resp Response, state db.IdemRecordState) (record, fate, error) {
	r.response, r.state = resp.normal(), state
	header, err := r.response.check(t.call.maxResponse)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return record{}, fateFailed, err
	}

	outlasting, cancel := outlast(ctx, t.call.limits.commit)
	defer cancel()
	trip := newTrip(t.conn)
	t.call.addComplete(trip, r.response, header, state, false)
	trip.command(t.commitSQL())
	trip.send(outlasting)
	t.call.readComplete(trip, &r)
	recorded := trip.err == nil
	tag := trip.skip()
	err = trip.end()
	switch {
	case err != nil:
		t.abandon(err)
		return record{}, commitFate(err), commitError(err, recorded)
	case tag.String() != "COMMIT": // it had been aborted without our knowing
		return record{}, fateFailed, fmt.Errorf("%w: %w", ErrTxAborted, pgx.ErrTxCommitRollback)
	}
	t.release()
	return r, fateDone, nil
}

func (t *transaction) commitSQL() string {
	if own := t.call.txOptions.CommitQuery; own != "" {
		return own
	}
	return commitDefault
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

// commitError names the one error of the last round trip that is fn's doing: the record was not there to be completed. What
// COMMIT itself answers is passed on as it is.
func commitError(err error, recorded bool) error {
	switch {
	case recorded:
		return err
	case hasCode(err, divisionByZero):
		return ended("the claimed record is gone or belongs to another transaction", nil)
	}
	return hint(err)
}

// fail ends the transaction of a fn that returned an error.
func (t *transaction) fail(ctx context.Context, err error) (record, fate, error) {
	held := t.rollbackHeld()
	rejected, isRejection := errors.AsType[*rejection](err)
	switch {
	case errors.Is(err, ErrTxEnded), errors.Is(err, ErrTxAborted):
		return record{}, fateFailed, err
	case !held:
		return record{}, fateFailed, ended("a statement of fn did, and began another", err)
	case isRejection:
		return t.reject(ctx, rejected.response)
	}
	return record{}, againIf(rerunnable(err)), err
}

// reject records the answer of a fn whose writes have been undone, in a second transaction. In between the key is free: if
// somebody else executes it, their outcome stands.
func (t *transaction) reject(ctx context.Context, resp Response) (record, fate, error) {
	if _, err := resp.normal().check(t.call.maxResponse); err != nil {
		return record{}, fateFailed, err
	}
	t.abandon(nil)
	again, r, fate, err := t.call.open(ctx)
	if fate != fateFree {
		return r, fate, err
	}
	defer again.abandon(nil)
	t.call.claimedAt = r.createdAt
	return again.complete(ctx, r, resp, failed)
}

// rollbackHeld rolls back, and reports whether what it rolled back was the transaction that had claimed the key. It says no
// only if the server does: fn may have left a connection that cannot be asked.
func (t *transaction) rollbackHeld() bool {
	pg := t.conn.PgConn()
	if !t.turn.end() || pg.IsClosed() || pg.IsBusy() {
		return true
	}
	held := true
	if pg.TxStatus() == 'T' {
		t.ask(func(ctx context.Context, trip *trip) {
			t.call.addHolds(trip)
			trip.command("rollback")
			trip.send(ctx)
			if answer := trip.next(); answer != nil && answer.NextRow() {
				held = string(answer.Values()[0]) != "f"
				_, _ = answer.Close()
			}
		})
	}
	if !pg.IsClosed() && pg.TxStatus() == 'E' { // it was aborted, or the question was refused
		t.ask(func(ctx context.Context, trip *trip) {
			trip.command("rollback")
			t.call.addLoad(trip)
			trip.send(ctx)
			trip.skip()
			if r := t.call.readLoad(trip); trip.err == nil {
				held = !r.ours // a record of ours that a rollback does not undo was committed by fn
			}
		})
	}
	return held
}

// ask makes a trip whose refusal by the server leaves the connection sound.
func (t *transaction) ask(do func(context.Context, *trip)) {
	within(t.conn.PgConn(), t.call.limits.rollback, func(ctx context.Context) error {
		trip := newTrip(t.conn)
		do(ctx, trip)
		err := trip.end()
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && !fatal(pgErr) {
			return nil
		}
		return err
	})
}

// abandon rolls back, because of err or for no reason, and gives the connection back. It does nothing to a transaction that
// was completed. A connection on which something is still running is closed, by the pool.
func (t *transaction) abandon(err error) {
	if t.pooled == nil {
		return
	}
	if !t.turn.end() { // fn, or its panic, left a goroutine that is using the tx
		conn := t.pooled.Hijack() // the pool gets its place back; the connection is never used again
		t.pooled = nil
		_ = conn.PgConn().Conn().Close()
		t.turn.afterUse(func() { _ = conn.Close(context.Background()) })
		return
	}
	if pg := t.conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		within(pg, t.call.limits.rollback, func(ctx context.Context) error { return pg.Exec(ctx, "rollback").Close() })
	}
	if pg := t.conn.PgConn(); staleStatement(err) && !pg.IsClosed() {
		// Those of fn are stale as well, as a rule. A new connection prepares everything afresh.
		within(pg, t.call.limits.rollback, t.conn.Close)
	}
	t.release()
}

func (t *transaction) release() {
	t.pooled.Release()
	t.pooled = nil
}

// within bounds what f says to the server after the caller's context may have ended. A deadline on the socket costs less
// than a context, and closes the connection all the same.
func within(pg *pgconn.PgConn, limit time.Duration, f func(context.Context) error) {
	_ = pg.Conn().SetDeadline(time.Now().Add(limit))
	if f(context.Background()) == nil {
		_ = pg.Conn().SetDeadline(time.Time{})
	} else if !pg.IsClosed() {
		_ = pg.Conn().Close() // no answer, or one that leaves the transaction as it was
	}
}
