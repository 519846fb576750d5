package idem

import (
	"context"
	"fmt"
	"sync"

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

	mu        sync.Mutex
	users     int    // methods that are running
	over      bool   // fn has returned
	endedByFn bool   // fn called Commit or Rollback
	whenIdle  func() // called when the last user leaves
}

// enter reports whether the transaction may be used. If so, leave must follow.
func (t *turn) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.users++
	}
	return !t.over
}

func (t *turn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users--
	if t.users == 0 && t.whenIdle != nil {
		t.whenIdle()
	}
}

// end kills the tx. It reports false if a method of it is still running in some goroutine that fn left behind: nothing may
// touch the connection then until it has left.
func (t *turn) end() (idle bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return t.users == 0
}

// afterUse calls f when nothing uses the transaction any more, which may be now.
func (t *turn) afterUse(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users == 0 {
		f()
		return
	}
	t.whenIdle = f
}

// closedTx is a transaction whose every method answers pgx.ErrTxClosed.
var closedTx = func() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}()

// use returns the transaction, or a closed one if the turn is over, and what to call when done with it.
func (g *guardTx) use() (pgx.Tx, func()) {
	if g.turn.enter() {
		return g.Tx, g.turn.leave
	}
	return closedTx, func() {}
}

func (g *guardTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, done := g.use()
	defer done()
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &guardTx{Tx: savepoint, turn: g.turn, nested: true}, nil
}

func (g *guardTx) Commit(ctx context.Context) error {
	tx, done := g.use()
	defer done()
	if g.nested || tx == closedTx {
		return tx.Commit(ctx)
	}
	return g.refuse("Commit")
}

func (g *guardTx) Rollback(ctx context.Context) error {
	tx, done := g.use()
	defer done()
	if g.nested || tx == closedTx {
		return tx.Rollback(ctx)
	}
	return g.refuse("Rollback")
}

// refuse also marks the turn: whoever believes that the writes are rolled back must not see them committed, so the call
// as a whole fails.
func (g *guardTx) refuse(method string) error {
	g.turn.mu.Lock()
	g.turn.endedByFn = true
	g.turn.mu.Unlock()
	return fmt.Errorf("%w: %s is refused; return an error to roll back, nil to commit", ErrTxEnded, method)
}

func (g *guardTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	tx, done := g.use()
	defer done()
	return tx.CopyFrom(ctx, table, columns, source)
}

func (g *guardTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	tx, done := g.use()
	defer done()
	return tx.SendBatch(ctx, batch)
}

// LargeObjects returns an object that is bound to the connection: unlike the tx itself, it must not be kept.
func (g *guardTx) LargeObjects() pgx.LargeObjects {
	tx, done := g.use()
	defer done()
	return tx.LargeObjects()
}

func (g *guardTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, done := g.use()
	defer done()
	return tx.Prepare(ctx, name, sql)
}

func (g *guardTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tx, done := g.use()
	defer done()
	return tx.Exec(ctx, sql, args...)
}

func (g *guardTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	tx, done := g.use()
	defer done()
	return tx.Query(ctx, sql, args...)
}

func (g *guardTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	tx, done := g.use()
	defer done()
	return tx.QueryRow(ctx, sql, args...)
}

// Conn returns the connection, nil once fn has returned. Like the LargeObjects, it must not be kept.
func (g *guardTx) Conn() *pgx.Conn {
	tx, done := g.use()
	defer done()
	return tx.Conn()
}
