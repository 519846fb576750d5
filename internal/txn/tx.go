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
	lease  Lease // nil once the connection was given back
	conn   *pgx.Conn
	access *access // of the latest fn

	roleLost bool // CloseAfter closed the connection because it has another role

	commit     commitStatement
	withCommit [4]Request // memory for the requests that travel with COMMIT
}

// PID returns the process number of the server that the connection was told. Behind a pooler the
// actual server process may be another one.
func (t *Tx) PID() uint32 { return t.conn.PgConn().PID() }

// Ask makes a round trip inside the transaction.
func (t *Tx) Ask(ctx context.Context, requests ...Request) error { return ask(ctx, t.conn, requests) }

// Run calls fn with the transaction. ExecutionID returns name for it. fn reports whether its writes
// are to be undone. Run returns the error of fn, or an error for the state in which fn left the
// transaction.
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
// It asks the server: holds inside the transaction, or committed after the rollback if the
// transaction was aborted and takes no more statements. If fn has ended the transaction, the answer
// is false. If the server cannot be asked, Held returns true.
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

// Question is a request and a function that reads its answer.
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

// Close rolls back, unless the transaction was committed, and gives the connection back.
func (t *Tx) Close() { t.CloseAfter(nil) }

// CloseAfter does what Close does, after the error err. It closes the connection instead of giving
// it back if the connection is still in use, or if err shows that the connection is useless.
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
		// The statements of fn are usually stale as well, and a server that has become a replica
		// stays one. A new connection prepares everything again, may lead to another server, and
		// has the role of the pool.
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

// hasAnotherRole reports whether the session has another role than its connection began with. A SET
// ROLE of fn outlasts the transaction.
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

// sublease returns the lease if the connection has another owner than a pgx pool, else nil.
func (t *Tx) sublease() Sublease {
	sub, _ := t.lease.(Sublease)
	return sub
}

// rollback returns the statement that rolls back.
func (t *Tx) rollback() command {
	if sub := t.sublease(); sub != nil && sub.Chained() {
		return "rollback and chain"
	}
	return "rollback"
}

// detach takes the connection out of its pool, which gets its slot back at once. If another owner
// has the connection, that owner gets it back when release is called.
func (t *Tx) detach() (conn *pgx.Conn, release func()) {
	lease := t.lease
	t.lease = nil
	if pooled, ok := lease.(interface{ Hijack() *pgx.Conn }); ok {
		return pooled.Hijack(), func() {}
	}
	return lease.Conn(), lease.Release
}

// stillInUse reports whether something that fn left behind may be using the connection.
func (t *Tx) stillInUse() bool {
	if t.access != nil && !t.access.end() {
		return true
	}
	sub := t.sublease()
	return sub != nil && sub.IsLost()
}

// endSublease ends the transaction of another owner of the connection.
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

// release gives the connection back. If plans are due, it renews them first, in the background,
// because no caller has to wait for that.
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

// within calls f, which may run after the end of the caller's context, with a time limit. A
// deadline on the socket costs less than a context with a timeout, and closes the connection just
// as well.
func within(conn *pgx.Conn, limit time.Duration, f func(context.Context) error) {
	socket := conn.PgConn().Conn()
	_ = socket.SetDeadline(time.Now().Add(limit))
	if f(context.Background()) == nil {
		_ = socket.SetDeadline(time.Time{})
	} else if !conn.IsClosed() {
		discard(conn) // the state of the transaction is unknown
	}
}

// txOnConn is the name under which a connection keeps its pgx.Tx.
const txOnConn = "github.com/idem-go/idem: tx"

// TxOn returns a pgx.Tx for whatever transaction the connection is in. The caller must not commit
// it or roll it back.
//
// pgx makes a pgx.Tx only for a transaction that it begins itself. A batch that begins one, and
// whose BEGIN was removed before it is sent, makes one without sending anything. Because it is
// never committed or rolled back, it serves the connection for all its life.
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
