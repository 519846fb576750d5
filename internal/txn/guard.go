package txn

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// guard is the tx that fn gets. It differs from the real transaction in two ways: it cannot be
// committed or rolled back, and it stops working once fn has returned. A tx that fn keeps cannot
// reach the connection, which may belong to another caller by then. guard embeds pgx.Tx so that it
// still implements the interface when pgx adds methods.
type guard struct {
	pgx.Tx
	access *access
	nested bool // a savepoint that fn began: fn may commit it and roll it back
}

// newGuard returns the guard of tx for one fn. The guard and its access are one allocation.
func newGuard(tx pgx.Tx, name string) *guard {
	g := &struct {
		guard
		access
	}{guard: guard{Tx: tx}, access: access{name: name}}
	g.guard.access = &g.access
	return &g.guard
}

// closedTx is a transaction whose methods all return pgx.ErrTxClosed.
var closedTx = func() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}()

// use returns the transaction, and a function that the caller must call after using the
// transaction. Once fn has returned, the transaction is closedTx.
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

// refuse returns the error of a method that fn must not call. It also makes the whole call fail: fn
// may believe that its writes are rolled back, so they must not be committed.
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

// LargeObjects returns an object that is bound to the connection. Unlike the tx, the object works
// after fn has returned, so fn must not keep it.
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

// Conn returns the connection, or nil once fn has returned. fn must not keep the connection.
func (g *guard) Conn() *pgx.Conn {
	tx, done := g.use()
	defer done()
	return tx.Conn()
}

// ExecutionID returns the name that Run gave to the transaction of tx. It reports false if tx is
// neither the tx of a fn nor a savepoint begun on it, or if the name is empty.
func ExecutionID(tx pgx.Tx) (string, bool) {
	g, ok := tx.(*guard)
	if !ok || g.access.name == "" {
		return "", false
	}
	return g.access.name, true
}

// Attach stores ctx in the tx of a fn, for ContextOf. It must be called before fn runs.
func Attach(ctx context.Context, tx pgx.Tx) {
	if g, ok := tx.(*guard); ok {
		g.access.ctx = ctx
	}
}

// ContextOf returns the context that Attach has stored in tx, or in the tx of the fn if tx is a
// savepoint. It returns nil if there is none.
func ContextOf(tx pgx.Tx) context.Context {
	if g, ok := tx.(*guard); ok {
		return g.access.ctx
	}
	return nil
}

// OnCommit registers l, which is notified once the transaction of tx is known to be committed. tx
// must be the tx of a fn, or a savepoint begun on it. l is not notified if the acknowledgement of
// COMMIT is lost, or if the transaction belongs to the caller (see Join). If tx is a savepoint, l
// is notified even if the savepoint was rolled back.
func OnCommit(tx pgx.Tx, l CommitListener) {
	if g, ok := tx.(*guard); ok {
		g.access.listen(l)
	}
}

// LentOf returns tx, or the transaction that tx guards, if the connection has another owner, such
// as database/sql. Otherwise it returns nil.
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

// MarkEnded makes the call that tx belongs to fail, because fn has ended the transaction or has
// tried to end it.
func MarkEnded(tx pgx.Tx) {
	if g, ok := tx.(*guard); ok {
		g.access.mu.Lock()
		defer g.access.mu.Unlock()
		g.access.endedByFn = true
	}
}

// EndUse makes the tx of a fn unusable. It reports whether no method of tx is running.
func EndUse(tx pgx.Tx) (idle bool) {
	g, ok := tx.(*guard)
	return !ok || g.access.end()
}

// access is the state that the tx of a fn shares with the savepoints begun on it. It ends when fn
// returns.
type access struct {
	name string          // what ExecutionID returns
	ctx  context.Context // what ContextOf returns; may be nil

	mu        sync.Mutex
	users     int    // number of methods that are running
	over      bool   // fn has returned
	endedByFn bool   // fn called Commit or Rollback
	whenIdle  func() // called when the last running method returns
	listening []CommitListener
}

// enter reports whether the transaction may be used. If it returns true, leave must follow.
func (a *access) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.users++
	}
	return !a.over
}

func (a *access) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users--
	if a.users == 0 && a.whenIdle != nil {
		a.whenIdle()
	}
}

// ended reports whether fn has called Commit or Rollback.
func (a *access) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.endedByFn
}

// end makes the tx unusable. It reports false if a method is still running in a goroutine that fn
// left behind. Until that method returns, nothing else may use the connection.
func (a *access) end() (idle bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	return a.users == 0
}

// afterUse calls f at once if no method is running, and otherwise when the last method returns.
func (a *access) afterUse(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == 0 {
		f()
		return
	}
	a.whenIdle = f
}

// CommitListener is notified of a commit. Committed must return at once. Its type must be
// comparable, because listeners are compared with ==.
type CommitListener interface{ Committed() }

// listen adds l to the listeners, unless l is already one of them.
func (a *access) listen(l CommitListener) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.listening, l) {
		a.listening = append(a.listening, l)
	}
}

func (a *access) listeners() []CommitListener {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.listening
}

// checkState returns the result of Run. The result depends on undo and err, which fn returned, and
// on the state in which fn left the transaction.
func checkState(conn *pgx.Conn, g *guard, undo bool, err error) (bool, error) {
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
		return undo, notCommittable(conn)
	}
	return undo, err
}

// notCommittable returns the reason why the transaction cannot be committed, or nil.
func notCommittable(conn *pgx.Conn) error {
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
