package idem

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// guardTx is the tx that fn is given. It is the real transaction with two differences: it cannot be committed or rolled
// back, and it is dead once fn has returned, so that a tx that was kept cannot reach a connection that by then belongs to
// somebody else. It embeds pgx.Tx because pgx adds methods to that interface.
type guardTx struct {
	pgx.Tx
	turn   *turn
	nested bool // a savepoint, begun by fn: that one may be committed and rolled back
}

// turn is the time during which fn may use the transaction. The savepoints begun on it share it.
type turn struct {
	operationID string
	inUse       sync.RWMutex // read-held while a method runs
	over        atomic.Bool
	endedByFn   atomic.Bool // fn called Commit or Rollback
}

// end kills the tx. It reports false if a method of it is still running in some goroutine that fn left behind: the
// connection cannot be trusted then.
func (t *turn) end() (idle bool) {
	t.over.Store(true)
	if !t.inUse.TryLock() {
		return false
	}
	t.inUse.Unlock()
	return true
}

// closedTx is a transaction whose every method answers pgx.ErrTxClosed.
var closedTx = func() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}()

// use returns the transaction, or a closed one if the turn is over. Call turn.inUse.RUnlock when done with it.
func (g *guardTx) use() pgx.Tx {
	g.turn.inUse.RLock()
	if g.turn.over.Load() {
		return closedTx
	}
	return g.Tx
}

func (g *guardTx) Begin(ctx context.Context) (pgx.Tx, error) {
	defer g.turn.inUse.RUnlock()
	tx, err := g.use().Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &guardTx{Tx: tx, turn: g.turn, nested: true}, nil
}

func (g *guardTx) Commit(ctx context.Context) error {
	defer g.turn.inUse.RUnlock()
	if tx := g.use(); g.nested || tx == closedTx {
		return tx.Commit(ctx)
	}
	return g.refuse("Commit")
}

func (g *guardTx) Rollback(ctx context.Context) error {
	defer g.turn.inUse.RUnlock()
	if tx := g.use(); g.nested || tx == closedTx {
		return tx.Rollback(ctx)
	}
	return g.refuse("Rollback")
}

// refuse also marks the turn: whoever believes that the writes are rolled back must not see them committed, so the call
// as a whole fails.
func (g *guardTx) refuse(method string) error {
	g.turn.endedByFn.Store(true)
	return fmt.Errorf("%w: %s is refused; return an error to roll back, nil to commit", ErrTxEnded, method)
}

func (g *guardTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	defer g.turn.inUse.RUnlock()
	return g.use().CopyFrom(ctx, table, columns, source)
}

func (g *guardTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	defer g.turn.inUse.RUnlock()
	return g.use().SendBatch(ctx, batch)
}

// LargeObjects returns an object that is bound to the connection: unlike the tx itself, it must not be kept.
func (g *guardTx) LargeObjects() pgx.LargeObjects {
	defer g.turn.inUse.RUnlock()
	return g.use().LargeObjects()
}

func (g *guardTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	defer g.turn.inUse.RUnlock()
	return g.use().Prepare(ctx, name, sql)
}

func (g *guardTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	defer g.turn.inUse.RUnlock()
	return g.use().Exec(ctx, sql, args...)
}

func (g *guardTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	defer g.turn.inUse.RUnlock()
	return g.use().Query(ctx, sql, args...)
}

func (g *guardTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	defer g.turn.inUse.RUnlock()
	return g.use().QueryRow(ctx, sql, args...)
}

// Conn returns the connection, nil once fn has returned. Like the LargeObjects, it must not be kept.
func (g *guardTx) Conn() *pgx.Conn {
	defer g.turn.inUse.RUnlock()
	return g.use().Conn()
}
