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

// ErrDriver says that a *sql.DB or *sql.Tx is not of the driver of pgx, github.com/jackc/pgx/v5/stdlib. Nothing was done.
var ErrDriver = errors.New("idemsql: the driver is not pgx's: open the database with idemsql.OpenDB, or with sql.Open(\"pgx\", …) of github.com/jackc/pgx/v5/stdlib")

// grip is the connection of a *sql.Tx, held in a call of its driver: nothing else that database/sql does with the connection, be it the rollback
// that follows the end of a context, can happen until it is released.
type grip struct {
	conn    *pgx.Conn
	release func()
}

// gripOf waits until the connection of tx is not in use. The error is sql.ErrTxDone if tx is over, and ErrDriver if it is not pgx's.
func gripOf(ctx context.Context, tx *sql.Tx) (*grip, error) {
	r := &revealer{conn: make(chan *pgx.Conn), released: make(chan struct{})}
	failed := make(chan error, 1)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, err := tx.ExecContext(ctx, "-- idemsql", r)
		failed <- err
	}()
	select {
	case conn := <-r.conn:
		return &grip{conn: conn, release: sync.OnceFunc(func() {
			close(r.released)
			<-gone
		})}, nil
	case err := <-failed:
		return nil, notGripped(ctx, err)
	}
}

func notGripped(ctx context.Context, err error) error {
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

// revealer is the argument of a statement that is never sent. pgx shows it the connection first. Any other driver is told that it has no value.
type revealer struct {
	conn     chan *pgx.Conn
	released chan struct{}
}

var errReached = errors.New("idemsql: no statement")

// RewriteQuery makes revealer a pgx.QueryRewriter.
func (r *revealer) RewriteQuery(_ context.Context, conn *pgx.Conn, _ string, _ []any) (string, []any, error) {
	r.conn <- conn
	<-r.released
	return "", nil, errReached
}

// Value makes revealer a driver.Valuer.
func (r *revealer) Value() (driver.Value, error) { return nil, ErrDriver }
