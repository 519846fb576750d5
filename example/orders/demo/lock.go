package demo

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lock is a lock in a database, held by a session of the demonstration. Statements that need the
// lock wait until it is released.
type lock struct {
	stage *stage
	pool  *pgxpool.Pool
	tx    pgx.Tx
}

// lock locks a row of the stock.
func (s *stage) lock(ctx context.Context, sku string) (*lock, error) {
	return s.lockBy(ctx, s.pool, `SELECT FROM stock WHERE sku = $1 FOR UPDATE`, sku)
}

// lockBy executes a statement that takes locks, in a new transaction. The locks last until release.
func (s *stage) lockBy(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) (*lock, error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	h := &lock{stage: s, pool: pool, tx: tx}
	if _, err := tx.Exec(ctx, sql, args...); err != nil {
		h.release()
		return nil, err
	}
	return h, nil
}

// waiter waits until the lock blocks another session, and returns the process id of the blocked
// backend.
func (h *lock) waiter(ctx context.Context) (pid int32, err error) {
	err = h.stage.waitForRow(ctx, h.pool, &pid,
		`SELECT pid FROM pg_stat_activity WHERE $1::integer = ANY (pg_blocking_pids(pid)) LIMIT 1`,
		h.tx.Conn().PgConn().PID())
	return pid, err
}

// release releases the lock. Further calls have no effect.
func (h *lock) release() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = h.tx.Rollback(ctx) // on failure pgx closes the connection, which also releases the lock
}

// waitForRow repeats the query until it returns a row, and scans the row into found.
func (s *stage) waitForRow(ctx context.Context, pool *pgxpool.Pool, found *int32, sql string, args ...any) error {
	for {
		err := pool.QueryRow(ctx, sql, args...).Scan(found)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}
