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

// lease is a connection of database/sql while an engine has it.
//
// The engine begins, claims, records and commits on the connection of pgx beneath. fn needs a *sql.Tx of the same connection. That of a *sql.DB
// of OpenDB is begun without a word to the server, and ended so before the engine goes on. Any other begins a transaction of its own, which the
// engine replaces by its own; when that ends, the next one begins with it, for the *sql.Tx to roll back.
type lease struct {
	sql    *sql.Conn
	conn   *pgx.Conn
	opened *openedConn // the connection of OpenDB, nil if it is another
	tx     *sql.Tx
	ctx    fuse
	share  *share
	taken  atomic.Bool // fn has returned
	grip   *grip       // keeps what fn has left behind from the connection
	ended  bool        // the *sql.Tx has
	lost   bool        // fn has left a goroutine that is in the midst of something
}

// Conn returns the connection.
func (l *lease) Conn() *pgx.Conn { return l.conn }

// Chained reports whether the *sql.Tx wants a transaction that it can roll back.
func (l *lease) Chained() bool { return l.opened == nil }

// Begin begins the *sql.Tx, if its driver sends a BEGIN. If ctx ends meanwhile, the connection is lost.
func (l *lease) Begin(ctx context.Context) error {
	if l.opened != nil || l.tx != nil {
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

// Lend makes tx usable beside the *sql.Tx.
func (l *lease) Lend(tx pgx.Tx) (pgx.Tx, error) {
	if l.opened != nil {
		l.opened.lent = lentTx{l}
		if err := l.begin(); err != nil {
			return nil, err
		}
	}
	l.share = newShare(l.conn, l.tx, tx)
	l.share.isLent = true
	l.ctx.blown.Store(true)
	return l.share.own, nil
}

// Around lets fn have the *sql.Tx, and takes it back.
func (l *lease) Around(fn func(pgx.Tx) (bool, error)) func(pgx.Tx) (bool, error) {
	return func(tx pgx.Tx) (undo bool, err error) {
		l.share.pass(tx)
		defer func() { // also if fn panics
			if taken := l.take(tx); err == nil && !undo {
				err = taken
			}
		}()
		return fn(tx)
	}
}

// patience is how long a statement of a goroutine that fn has left behind may go on after fn has returned.
const patience = 5 * time.Second

// take takes the connection back from fn, to which tx was given. The error says what fn has left behind.
func (l *lease) take(tx pgx.Tx) error {
	l.taken.Store(true)
	if !txn.EndUse(tx) {
		l.lost = true
		txn.CloseSocket(l.conn) // what is running fails
		return errInUse
	}
	var late atomic.Bool
	giveUp := func() {
		late.Store(true)
		txn.CloseSocket(l.conn)
	}
	open := l.share.revoke()
	if open {
		giveUp()
	}
	timer := time.AfterFunc(patience, giveUp)
	defer timer.Stop()
	err := l.end(tx)
	switch {
	case late.Load() && !open:
		return errInUse
	case open:
		return errLeftOpen
	}
	return err
}

var (
	errInUse    = fmt.Errorf("%w: a goroutine of fn is still using the tx", idem.ErrTxAborted)
	errLeftOpen = fmt.Errorf("%w: rows or batch results were left open", idem.ErrTxAborted)
)

// end keeps everything but the engine from the connection.
func (l *lease) end(tx pgx.Tx) error {
	if l.opened == nil {
		return l.endBeside(tx)
	}
	var busy bool
	err := l.sql.Raw(func(any) error {
		busy = l.conn.PgConn().IsBusy()
		if busy { // database/sql would read the rest
			txn.CloseSocket(l.conn)
		}
		return nil
	})
	l.ended = true
	_ = l.tx.Rollback() // closes rows; the driver sends nothing
	switch {
	case err != nil:
		return fmt.Errorf("%w: its connection was lost: %w", idem.ErrTxAborted, err)
	case busy:
		return errLeftOpen
	}
	return nil
}

// endBeside does that where the *sql.Tx is not at an end yet.
func (l *lease) endBeside(tx pgx.Tx) error {
	g, err := gripOf(context.Background(), l.tx)
	switch {
	case errors.Is(err, sql.ErrTxDone):
		txn.MarkEnded(tx)
		return nil
	case err != nil:
		return fmt.Errorf("%w: its connection was lost: %w", idem.ErrTxAborted, err)
	}
	l.grip = g
	if l.conn.PgConn().IsBusy() {
		txn.CloseSocket(l.conn)
		return errLeftOpen
	}
	return nil
}

// IsLost reports whether a goroutine that fn has left behind may be using the connection.
func (l *lease) IsLost() bool { return l.lost }

// End ends the *sql.Tx.
func (l *lease) End() {
	if l.grip != nil {
		l.grip.release()
		l.grip = nil
	}
	if l.tx == nil || l.ended {
		return
	}
	l.ended = true
	l.ctx.blown.Store(false)
	_ = l.tx.Rollback()
}

// Release gives the connection back.
func (l *lease) Release() {
	l.End()
	_ = l.sql.Close()
}

// lentTx is the transaction of a Do. It is not for fn to end.
type lentTx struct{ lease *lease }

func (t lentTx) Commit() error {
	return t.lease.share.refuse(pgx.Tx.Commit)
}

func (t lentTx) Rollback() error {
	if t.lease.taken.Load() {
		return nil
	}
	return t.lease.share.refuse(pgx.Tx.Rollback)
}

// fuse is the context of a *sql.Tx. It ends neither with that of the caller, since database/sql would roll back in a goroutine of its own then, nor
// with anything else. While fn runs it is over for the driver, which looks at it at COMMIT and ROLLBACK alone: a fn that calls Commit or
// Rollback has its connection closed, and nothing is committed.
type fuse struct {
	values context.Context // nil for none
	blown  atomic.Bool
}

var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (f *fuse) Deadline() (time.Time, bool) { return time.Time{}, false }

func (f *fuse) Value(key any) any {
	if f.values == nil {
		return nil
	}
	return f.values.Value(key)
}

func (f *fuse) Done() <-chan struct{} {
	if f.blown.Load() {
		return over
	}
	return nil
}

func (f *fuse) Err() error {
	if f.blown.Load() {
		return idem.ErrTxEnded
	}
	return nil
}
