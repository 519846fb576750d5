package txn

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// run gives a transaction to fn, and finds out in which state fn left it.
func run(conn *pgx.Conn, g *guard, fn func(pgx.Tx) (bool, error)) (undo bool, err error) {
	undo, err = fn(g)
	return judge(conn, g, undo, err)
}

// judge says what follows from the state in which fn left the transaction, and from what it returned.
func judge(conn *pgx.Conn, g *guard, undo bool, err error) (bool, error) {
	idle := g.access.end()
	switch {
	case !idle && err == nil:
		return undo, fmt.Errorf("%w: a goroutine of fn is still using the tx", ErrAborted)
	case !idle:
		return undo, err
	case g.access.endedByFn && err == nil:
		return undo, Ended("fn called Commit or Rollback on the tx", err)
	case !conn.IsClosed() && !conn.PgConn().IsBusy() && conn.PgConn().TxStatus() == 'I':
		return undo, Ended("a statement of fn did", err)
	case err == nil && !undo:
		return undo, unfit(conn)
	}
	return undo, err
}

// unfit tells why the transaction, as fn left it, cannot be committed.
func unfit(conn *pgx.Conn) error {
	switch {
	case conn.IsClosed():
		return fmt.Errorf("%w: its connection was lost", ErrAborted)
	case conn.PgConn().IsBusy():
		return fmt.Errorf("%w: rows or batch results were left open", ErrAborted)
	case conn.PgConn().TxStatus() == 'E':
		return fmt.Errorf("%w: fn ignored the error of a statement", ErrAborted)
	}
	return nil
}
