package txn

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// guard is the tx that fn is given. It is the real transaction with two differences: it cannot be committed or rolled
// back, and it is dead once fn has returned, so that a tx that was kept cannot reach a connection that by then belongs to
// another caller. It embeds pgx.Tx because pgx adds methods to that interface.
type guard struct {
	pgx.Tx
	access *access
	nested bool // a savepoint, begun by fn: that one may be committed and rolled back
}

// newGuard returns the guard of a transaction for one fn. It is one allocation.
func newGuard(tx pgx.Tx, name string) *guard {
	g := &struct {
		guard
		access
	}{guard: guard{Tx: tx}, access: access{name: name}}
	g.guard.access = &g.access
	return &g.guard
}

// closedTx is a transaction whose every method answers pgx.ErrTxClosed.
var closedTx = func() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}()

// use returns the transaction, or a closed one if its time is over, and what to call when done with it.
func (g *guard) use() (pgx.Tx, func()) {
	if g.access.enter() {
		return g.Tx, g.access.leave
	}
	return closedTx, func() {}
}

func (g *guard) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, done := g.use()
	defer done()
	savepoint, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &guard{Tx: savepoint, access: g.access, nested: true}, nil
}

func (g *guard) Commit(ctx context.Context) error {
	tx, done := g.use()
	defer done()
	if g.nested || tx == closedTx {
		return tx.Commit(ctx)
	}
	return g.refuse("Commit")
}

func (g *guard) Rollback(ctx context.Context) error {
	tx, done := g.use()
	defer done()
	if g.nested || tx == closedTx {
		return tx.Rollback(ctx)
	}
	return g.refuse("Rollback")
}

// refuse also marks the access: a caller that believes that the writes are rolled back must not see them committed, so the call
// as a whole fails.
func (g *guard) refuse(method string) error {
	MarkEnded(g)
	return fmt.Errorf("%w: %s is refused; return an error to roll back, nil to commit", ErrEnded, method)
}

func (g *guard) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	tx, done := g.use()
	defer done()
	return tx.CopyFrom(ctx, table, columns, source)
}

func (g *guard) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	tx, done := g.use()
	defer done()
	return tx.SendBatch(ctx, batch)
}

// LargeObjects returns an object that is bound to the connection: unlike the tx itself, it must not be kept.
func (g *guard) LargeObjects() pgx.LargeObjects {
	tx, done := g.use()
	defer done()
	return tx.LargeObjects()
}

func (g *guard) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, done := g.use()
	defer done()
	return tx.Prepare(ctx, name, sql)
}

func (g *guard) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	tx, done := g.use()
	defer done()
	return tx.Exec(ctx, sql, args...)
}

func (g *guard) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	tx, done := g.use()
	defer done()
	return tx.Query(ctx, sql, args...)
}

func (g *guard) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	tx, done := g.use()
	defer done()
	return tx.QueryRow(ctx, sql, args...)
}

// Conn returns the connection, nil once fn has returned. Like the LargeObjects, it must not be kept.
func (g *guard) Conn() *pgx.Conn {
	tx, done := g.use()
	defer done()
	return tx.Conn()
}

// ExecutionID returns the name of the transaction that tx belongs to, if tx is one that a fn was given or a savepoint begun
// on it.
func ExecutionID(tx pgx.Tx) (string, bool) {
	g, ok := tx.(*guard)
	if !ok || g.access.name == "" {
		return "", false
	}
	return g.access.name, true
}

// Attach gives the tx of a fn a context, which ContextOf returns. It is called before fn is.
func Attach(ctx context.Context, tx pgx.Tx) {
	if g, ok := tx.(*guard); ok {
		g.access.ctx = ctx
	}
}

// ContextOf returns the context that was attached to tx, or to the one that tx is a savepoint of. It is nil if there is none.
func ContextOf(tx pgx.Tx) context.Context {
	if g, ok := tx.(*guard); ok {
		return g.access.ctx
	}
	return nil
}

// WhenCommitted tells w once the transaction is known to be committed, if tx is one that a fn was given, or a savepoint begun
// on it, and the transaction is not the caller's own. It is not told where no caller heard of the COMMIT, and told for nothing
// where a savepoint was undone.
func WhenCommitted(tx pgx.Tx, w Witness) {
	if g, ok := tx.(*guard); ok {
		g.access.tell(w)
	}
}

// LentOf returns the transaction that tx is, or guards, if it is lent, and nil if it is not.
func LentOf(tx pgx.Tx) Lent {
	for {
		g, ok := tx.(*guard)
		if !ok {
			lent, _ := tx.(Lent)
			return lent
		}
		tx = g.Tx
	}
}

// MarkEnded makes the call fail to which the tx of a fn belongs: fn has committed it or rolled it back, or has tried to.
func MarkEnded(tx pgx.Tx) {
	if g, ok := tx.(*guard); ok {
		g.access.mu.Lock()
		defer g.access.mu.Unlock()
		g.access.endedByFn = true
	}
}

// EndUse makes the tx of a fn dead, and reports whether no method of it is running.
func EndUse(tx pgx.Tx) (idle bool) {
	g, ok := tx.(*guard)
	return !ok || g.access.end()
}
