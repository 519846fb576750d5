package txn

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Tx is one transaction on one connection.
type Tx struct {
	engine *Engine
	lease  Lease // nil once the connection was returned
	conn   *pgx.Conn
	access *access // the access of the latest fn

	roleLost bool // CloseAfter closed the connection because a SET ROLE was in effect

	commit     commitStatement
	withCommit [4]Request // preallocated memory for the requests that are sent with COMMIT
}

// PID returns the number of the server process, as reported when the connection was opened. Behind
// a pooler, another server process may execute the statements.
func (t *Tx) PID() uint32 { return t.conn.PgConn().PID() }

// Ask makes a round trip inside the transaction.
func (t *Tx) Ask(ctx context.Context, requests ...Request) error { return ask(ctx, t.conn, requests) }

// Run calls fn with a guarded pgx.Tx, for which ExecutionID returns name. fn reports with undo
// whether its writes must be rolled back. Run returns the results of fn, or an error if fn has left
// the transaction in a state in which it cannot be committed.
func (t *Tx) Run(name string, fn func(pgx.Tx) (undo bool, err error)) (undo bool, err error) {
	if t.engine.Rehearse || rehearsesAll() {
		fn = rehearsed(t.engine.Limits.Rollback, fn)
	}
	tx := TxOn(t.conn)
	if sub := t.sublease(); sub != nil {
		if tx, err = sub.Lend(tx); err != nil {
			return false, err
		}
		fn = sub.Around(fn)
	}
	g := newGuard(tx, name)
	if t.access != nil {
		g.access.listening = t.access.listeners()
	}
	t.access = g.access
	undo, err = fn(g)
	return checkState(t.conn, g, undo, err)
}

// Held rolls back, and reports whether the transaction that Open began was still open until then.
// It returns false if fn has ended that transaction, even if fn has begun another one. To find out,
// Held sends the question holds inside the transaction. If the transaction is aborted and accepts
// no more statements, Held instead sends the question committed after the rollback. If the server
// cannot be asked, Held returns true.
func (t *Tx) Held(holds Question, committed Question) bool {
	pg := t.conn.PgConn()
	if t.stillInUse() || pg.IsClosed() || pg.IsBusy() {
		return true
	}
	held := true
	if pg.TxStatus() == 'T' {
		within(t.conn, t.engine.Limits.Rollback, func(ctx context.Context) error {
			err := ask(ctx, t.conn, []Request{holds.Request, t.rollback()})
			held = err != nil || holds.Answer()
			return ignoreRefusal(err)
		})
	}
	if !pg.IsClosed() && pg.TxStatus() == 'E' { // aborted before, or by the question
		within(t.conn, t.engine.Limits.Rollback, func(ctx context.Context) error {
			err := ask(ctx, t.conn, []Request{t.rollback(), committed.Request})
			held = err != nil || committed.Answer()
			return ignoreRefusal(err)
		})
	}
	return held
}

// Question is a request and a function that evaluates the answer to the request.
type Question struct {
	Request
	Answer func() bool
}

// ignoreRefusal returns nil for an ordinary error of the server, which leaves the connection in a
// known state. It returns any other err.
func ignoreRefusal(err error) error {
	if refused(err) {
		return nil
	}
	return err
}

// Close rolls back, unless the transaction was committed, and returns the connection to its pool or
// owner.
func (t *Tx) Close() { t.CloseAfter(nil) }

// CloseAfter does what Close does, after the error err. It closes the connection instead of
// returning it if the connection is still in use, or if err shows that the connection is useless.
func (t *Tx) CloseAfter(err error) {
	if t.lease == nil {
		return
	}
	if t.stillInUse() { // a goroutine that fn left behind uses the tx
		owned := t.sublease() != nil
		conn, release := t.detach() // the pool gets its slot back, and the connection is never used again
		_ = conn.PgConn().Conn().Close()
		t.access.afterUse(func() {
			if owned {
				go release()
				return
			}
			_ = conn.Close(context.Background())
		})
		return
	}
	pg := t.conn.PgConn()
	t.endSublease()
	t.undo()
	t.roleLost = HasCode(err, "42501") && wasAlive(t.conn) && t.hasAnotherRole()
	if (Stale(err) || ReadOnly(err) || t.roleLost) && !pg.IsClosed() {
		// The connection is closed. Its other prepared statements are usually stale as well, and a
		// server that has become a replica usually stays a replica. A new connection prepares all
		// statements again, may lead to another server, and has the role of the pool.
		within(t.conn, t.engine.Limits.Rollback, t.conn.Close)
	}
	t.release()
}

// undo rolls back, unless a statement is still running on the connection.
func (t *Tx) undo() {
	pg := t.conn.PgConn()
	if !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		within(t.conn, t.engine.Limits.Rollback, func(ctx context.Context) error { return pg.Exec(ctx, "rollback").Close() })
	}
}

// hasAnotherRole reports whether the role of the session has changed since the connection was
// opened. A SET ROLE in a fn remains in effect after the transaction.
func (t *Tx) hasAnotherRole() bool {
	pg := t.conn.PgConn()
	if pg.IsClosed() || pg.IsBusy() {
		return false
	}
	var role string
	within(t.conn, t.engine.Limits.Rollback, func(ctx context.Context) error {
		results, err := pg.Exec(ctx, "select current_setting('role')").ReadAll()
		if err == nil {
			role = string(results[0].Rows[0][0])
		}
		return err
	})
	return role != "" && role != cmp.Or(t.conn.Config().RuntimeParams["role"], "none")
}

// sublease returns the lease as a Sublease if the connection has another owner than a pgx pool,
// such as database/sql. Otherwise it returns nil.
func (t *Tx) sublease() Sublease {
	sub, _ := t.lease.(Sublease)
	return sub
}

// rollback returns the statement that rolls back. If Sublease.Chained is true, the statement also
// begins another transaction.
func (t *Tx) rollback() command {
	if sub := t.sublease(); sub != nil && sub.Chained() {
		return "rollback and chain"
	}
	return "rollback"
}

// detach takes the connection out of its pool, which gets its slot back at once. If the connection
// has another owner, release returns it to that owner.
func (t *Tx) detach() (conn *pgx.Conn, release func()) {
	lease := t.lease
	t.lease = nil
	if pooled, ok := lease.(interface{ Hijack() *pgx.Conn }); ok {
		return pooled.Hijack(), func() {}
	}
	return lease.Conn(), lease.Release
}

// stillInUse reports whether something that fn has left behind, such as a goroutine, may be using
// the connection.
func (t *Tx) stillInUse() bool {
	if t.access != nil && !t.access.end() {
		return true
	}
	sub := t.sublease()
	return sub != nil && sub.IsLost()
}

// endSublease ends the transaction that another owner of the connection has, if there is one.
func (t *Tx) endSublease() {
	sub := t.sublease()
	if sub == nil {
		return
	}
	if !sub.Chained() || t.conn.IsClosed() || t.conn.PgConn().IsBusy() {
		sub.End()
		return
	}
	within(t.conn, t.engine.Limits.Rollback, func(context.Context) error {
		sub.End()
		return nil
	})
}

// release returns the connection. If plans of its prepared statements are too old, a goroutine
// renews the plans first, so that no caller waits for that.
func (t *Tx) release() {
	t.endSublease()
	lease, conn := t.lease, t.conn
	t.lease = nil
	if conn.IsClosed() || conn.PgConn().TxStatus() != 'I' || !roundtrip.MustReplan(conn) {
		lease.Release()
		return
	}
	limit := t.engine.Limits.Rollback
	go func() {
		defer lease.Release()
		within(conn, limit, func(ctx context.Context) error { return ignoreRefusal(roundtrip.Replan(ctx, conn)) })
	}()
}

// within calls f with a time limit in place of the caller's context, which may have ended. The
// limit is a deadline of the socket, which costs less than a context with a timeout. If f fails,
// within closes the connection.
func within(conn *pgx.Conn, limit time.Duration, f func(context.Context) error) {
	socket := conn.PgConn().Conn()
	_ = socket.SetDeadline(time.Now().Add(limit))
	if f(context.Background()) == nil {
		_ = socket.SetDeadline(time.Time{})
	} else if !conn.IsClosed() {
		discard(conn) // the state of the transaction is unknown
	}
}

// txOnConn is the key of the pgx.Tx in the custom data of a connection.
const txOnConn = "github.com/idem-go/idem: tx"

// TxOn returns a pgx.Tx for whatever transaction the connection is in. The caller must not commit
// it or roll it back.
//
// pgx creates a pgx.Tx only for a transaction that it begins itself. So TxOn adds a BEGIN to a
// batch, removes the BEGIN from the queue of the batch, and calls SendBatch. For an empty queue
// SendBatch sends nothing to the server, but its result still has a pgx.Tx. Because this pgx.Tx is
// never committed or rolled back, all transactions of the connection can use it.
func TxOn(conn *pgx.Conn) pgx.Tx {
	data := conn.PgConn().CustomData()
	if tx, ok := data[txOnConn].(pgx.Tx); ok {
		return tx
	}
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.QueuedQueries = nil
	tx := conn.SendBatch(context.Background(), batch).Tx()
	data[txOnConn] = tx
	return tx
}
