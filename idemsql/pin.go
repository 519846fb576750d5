package idemsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// ErrDriver means that a *sql.DB or *sql.Tx does not use the driver of pgx,
// github.com/jackc/pgx/v5/stdlib. Nothing was done.
var ErrDriver = errors.New("idemsql: the driver is not pgx's: open the database with idemsql.OpenDB, or with sql.Open(\"pgx\", …) of github.com/jackc/pgx/v5/stdlib")

// pinnedConn is the driver connection under a *sql.Tx. While it is pinned, database/sql cannot use
// the connection, not even for the rollback that follows the end of a context.
type pinnedConn struct {
	conn    *pgx.Conn
	release func()
}

// pin waits until the connection of tx is idle, and keeps database/sql from using it until the
// pinnedConn is released. It returns sql.ErrTxDone if tx has ended, and ErrDriver if the driver is
// not pgx's.
//
// database/sql has no method that returns the connection of a *sql.Tx, but it locks the connection
// while the driver executes a statement. So pin executes a statement whose argument is a connProbe.
// pgx calls the probe with the connection before it sends the statement. The probe blocks until
// release is called, and then makes the statement fail, so that nothing is ever sent.
func pin(ctx context.Context, tx *sql.Tx) (*pinnedConn, error) {
	probe := &connProbe{conn: make(chan *pgx.Conn), released: make(chan struct{})}
	failed := make(chan error, 1)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_, err := tx.ExecContext(ctx, "-- idemsql", probe)
		failed <- err
	}()
	select {
	case conn := <-probe.conn:
		return &pinnedConn{conn: conn, release: sync.OnceFunc(func() {
			close(probe.released)
			<-returned
		})}, nil
	case err := <-failed:
		return nil, pinError(ctx, err)
	}
}

// pinError returns the error of pin. err is what the statement with the connProbe returned before
// pgx called the probe.
func pinError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, ErrDriver), errors.Is(err, driver.ErrBadConn):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		return ErrDriver
	}
	return fmt.Errorf("%w: %w", ErrDriver, err)
}

// connProbe is the argument of a statement that is never sent. pgx calls RewriteQuery with the
// connection. Any other driver calls Value, which returns ErrDriver.
type connProbe struct {
	conn     chan *pgx.Conn
	released chan struct{}
}

var errProbe = errors.New("idemsql: the probing statement is not sent")

// RewriteQuery implements pgx.QueryRewriter.
func (p *connProbe) RewriteQuery(_ context.Context, conn *pgx.Conn, _ string, _ []any) (string, []any, error) {
	p.conn <- conn
	<-p.released
	return "", nil, errProbe
}

// Value implements driver.Valuer.
func (p *connProbe) Value() (driver.Value, error) { return nil, ErrDriver }
