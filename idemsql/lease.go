package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

// lease is a connection of database/sql while package txn, the transaction engine, uses it.
//
// The engine begins, claims, records and commits on the pgx connection underneath. fn needs a
// *sql.Tx on the same connection. There are two ways to make this *sql.Tx:
//
//   - On a connection of OpenDB, the lease hands the engine's transaction to the driver, which
//     sends nothing. The *sql.Tx ends, also without a statement, before the engine continues.
//   - On any other connection, BeginTx sends a BEGIN of its own. The engine replaces that
//     transaction with its own. The statement that ends the engine's transaction begins an empty
//     transaction (AND CHAIN), which the *sql.Tx then rolls back.
type lease struct {
	sql    *sql.Conn
	conn   *pgx.Conn
	dbKind *openedConn // the driver connection if the *sql.DB is from OpenDB; otherwise nil
	tx     *sql.Tx
	ctx    txContext // the context of tx
	pair   *txPair

	fnReturned atomic.Bool
	pinned     *pinnedConn // set after fn has returned, so that goroutines of fn cannot use tx
	ended      bool        // tx has ended
	lost       bool        // a goroutine of fn is still using the connection
}

// Conn returns the pgx connection.
func (l *lease) Conn() *pgx.Conn { return l.conn }

// Chained reports whether the *sql.Tx will send a ROLLBACK. If so, the session must have an open
// transaction even after the engine's transaction has ended.
func (l *lease) Chained() bool { return l.dbKind == nil }

// Begin begins the *sql.Tx, unless its connection is from OpenDB. If ctx ends while Begin runs,
// Begin closes the connection.
func (l *lease) Begin(ctx context.Context) error {
	if l.dbKind != nil || l.tx != nil {
		return nil
	}
	l.ctx.values = ctx
	stop := context.AfterFunc(ctx, func() { txn.CloseSocket(l.conn) })
	err := l.begin()
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

func (l *lease) begin() (err error) {
	l.tx, err = l.sql.BeginTx(&l.ctx, nil)
	return err
}

// Lend returns tx as a pgx.Tx that can be used together with the *sql.Tx.
func (l *lease) Lend(tx pgx.Tx) (pgx.Tx, error) {
	if l.dbKind != nil {
		l.dbKind.lent = lentTx{l}
		if err := l.begin(); err != nil {
			return nil, err
		}
	}
	l.pair = newPair(l.conn, l.tx, tx)
	l.pair.ofDo = true
	l.ctx.canceled.Store(true)
	return l.pair.pgxTx, nil
}

// Around returns a function that calls fn and then reclaims the connection: goroutines, rows and
// batch results that fn has left behind can no longer use it.
func (l *lease) Around(fn func(pgx.Tx) (bool, error)) func(pgx.Tx) (bool, error) {
	return func(tx pgx.Tx) (undo bool, err error) {
		l.pair.setFnTx(tx)
		defer func() { // also if fn panics
			if leftover := l.reclaim(tx); err == nil && !undo {
				err = leftover
			}
		}()
		return fn(tx)
	}
}

// leftoverTimeout is how long a statement may still run after fn has returned, if it runs in a
// goroutine that fn has left behind.
const leftoverTimeout = 5 * time.Second

// reclaim takes the connection back from fn, which got tx. It returns an error if fn has left a
// goroutine, rows or batch results that still use the connection.
func (l *lease) reclaim(tx pgx.Tx) error {
	l.fnReturned.Store(true)
	if !txn.EndUse(tx) {
		l.lost = true
		txn.CloseSocket(l.conn) // fails the running statement
		return errStillInUse
	}
	var late atomic.Bool
	giveUp := func() {
		late.Store(true)
		txn.CloseSocket(l.conn)
	}
	leftOpen := l.pair.close()
	if leftOpen {
		giveUp()
	}
	timer := time.AfterFunc(leftoverTimeout, giveUp)
	defer timer.Stop()
	err := l.detach(tx)
	switch {
	case late.Load() && !leftOpen:
		return errStillInUse
	case leftOpen:
		return errLeftOpen
	}
	return err
}

var (
	errStillInUse = fmt.Errorf("%w: a goroutine of fn is still using the transaction", idem.ErrTxAborted)
	errLeftOpen   = fmt.Errorf("%w: rows or batch results were left open", idem.ErrTxAborted)
)

// detach keeps goroutines and rows that fn has left behind from using the connection. It returns an
// error if that is not possible.
func (l *lease) detach(tx pgx.Tx) error {
	if l.dbKind == nil {
		return l.detachOwnTx(tx)
	}
	var busy bool
	err := l.sql.Raw(func(any) error {
		busy = l.conn.PgConn().IsBusy()
		if busy { // otherwise the rollback below would read the remaining rows
			txn.CloseSocket(l.conn)
		}
		return nil
	})
	l.ended = true
	_ = l.tx.Rollback() // closes open rows; the driver sends nothing: see lentTx
	switch {
	case err != nil:
		return fmt.Errorf("%w: its connection was lost: %w", idem.ErrTxAborted, err)
	case busy:
		return errLeftOpen
	}
	return nil
}

// detachOwnTx is detach for a *sql.Tx that has sent its own BEGIN. It pins the connection, so that
// database/sql cannot use it until End ends the *sql.Tx.
func (l *lease) detachOwnTx(tx pgx.Tx) error {
	pinned, err := pin(context.Background(), l.tx)
	switch {
	case errors.Is(err, sql.ErrTxDone):
		txn.MarkEnded(tx)
		return nil
	case err != nil:
		return fmt.Errorf("%w: its connection was lost: %w", idem.ErrTxAborted, err)
	}
	l.pinned = pinned
	if l.conn.PgConn().IsBusy() {
		txn.CloseSocket(l.conn)
		return errLeftOpen
	}
	return nil
}

// IsLost reports whether a goroutine that fn has left behind may be using the connection.
func (l *lease) IsLost() bool { return l.lost }

// End ends the *sql.Tx, after the engine's transaction has ended.
func (l *lease) End() {
	if l.pinned != nil {
		l.pinned.release()
		l.pinned = nil
	}
	if l.tx == nil || l.ended {
		return
	}
	l.ended = true
	l.ctx.canceled.Store(false)
	_ = l.tx.Rollback()
}

// Release ends the *sql.Tx and returns the connection to the *sql.DB.
func (l *lease) Release() {
	l.End()
	_ = l.sql.Close()
}

// lentTx represents the engine's transaction for database/sql, on a connection of OpenDB. If fn
// tries to end the transaction, fn gets an error. After fn has returned, Rollback does nothing, so
// that database/sql can end its *sql.Tx while the engine's transaction stays open.
type lentTx struct{ lease *lease }

func (t lentTx) Commit() error {
	return t.lease.pair.refuse(pgx.Tx.Commit)
}

func (t lentTx) Rollback() error {
	if t.lease.fnReturned.Load() {
		return nil
	}
	return t.lease.pair.refuse(pgx.Tx.Rollback)
}

// txContext is the context of a *sql.Tx. It has the values of the caller's context, but does not
// end with it. Otherwise database/sql would roll back in a goroutine of its own as soon as the
// caller's context ends.
//
// While fn runs, the context reports that it is canceled. The driver uses this context only for
// COMMIT and ROLLBACK. So if fn calls Commit or Rollback, the method fails and closes the
// connection, and nothing is committed.
type txContext struct {
	values   context.Context // the caller's context; nil if there is none
	canceled atomic.Bool
}

// closedChan is the Done channel of a canceled txContext.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (c *txContext) Deadline() (time.Time, bool) { return time.Time{}, false }

func (c *txContext) Value(key any) any {
	if c.values == nil {
		return nil
	}
	return c.values.Value(key)
}

func (c *txContext) Done() <-chan struct{} {
	if c.canceled.Load() {
		return closedChan
	}
	return nil
}

func (c *txContext) Err() error {
	if c.canceled.Load() {
		return idem.ErrTxEnded
	}
	return nil
}
