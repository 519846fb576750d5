package txn

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Tx is one transaction on one connection of the pool.
type Tx struct {
	engine *Engine
	lease  Lease // nil once the connection has been given back
	conn   *pgx.Conn
	access *access // of the last fn

	roleLost bool // CloseAfter has closed the connection because it has another role

	commit     commitStatement
	withCommit [4]Request // room for what travels with COMMIT
}

// PID is the number of the server's process, as it was told when the connection was made. Behind a pooler it is another one.
func (t *Tx) PID() uint32 { return t.conn.PgConn().PID() }

// Ask makes a round trip inside the transaction.
func (t *Tx) Ask(ctx context.Context, requests ...Request) error { return ask(ctx, t.conn, requests) }

// Run gives the transaction to fn, under a name that ExecutionID tells. fn reports whether its writes are to be undone. The
// error is that of fn, or the one that follows from the state in which fn left the transaction.
func (t *Tx) Run(name string, fn func(pgx.Tx) (undo bool, err error)) (undo bool, err error) {
	if t.engine.Rehearse || rehearsesAll() {
		fn = rehearsed(t.engine.Limits.Rollback, fn)
	}
	tx := txOf(t.conn)
	if sub := t.sublease(); sub != nil {
		if tx, err = sub.Lend(tx); err != nil {
			return false, err
		}
		fn = sub.Around(fn)
	}
	g := newGuard(tx, name)
	if t.access != nil {
		g.access.committed = t.access.witnesses()
	}
	t.access = g.access
	return run(t.conn, g, fn)
}

// Held rolls back, and reports whether what it rolled back was the transaction that Open had begun. The server is asked: by
// holds within the transaction, by committed after the rollback of one that takes no more questions. The answer to either
// is false if fn has ended our transaction. Where the server cannot be asked, Held is true.
func (t *Tx) Held(holds Question, committed Question) bool {
	pg := t.conn.PgConn()
	if t.isLeft() || pg.IsClosed() || pg.IsBusy() {
		return true
	}
	held := true
	if pg.TxStatus() == 'T' {
		within(t.conn, t.engine.Limits.Rollback, func(ctx context.Context) error {
			err := ask(ctx, t.conn, []Request{holds.Request, t.rollback()})
			held = err != nil || holds.Answer()
			return sound(err)
		})
	}
	if !pg.IsClosed() && pg.TxStatus() == 'E' { // it was aborted, or the question was refused
		within(t.conn, t.engine.Limits.Rollback, func(ctx context.Context) error {
			err := ask(ctx, t.conn, []Request{t.rollback(), committed.Request})
			held = err != nil || committed.Answer()
			return sound(err)
		})
	}
	return held
}

// Question is a request with what its answer says.
type Question struct {
	Request
	Answer func() bool
}

// sound drops an error that leaves the connection in a known state.
func sound(err error) error {
	if refused(err) {
		return nil
	}
	return err
}

// Close rolls back, unless the transaction was committed, and gives the connection back.
func (t *Tx) Close() { t.CloseAfter(nil) }

// CloseAfter does that because of err. A connection on which something is still running, or that is of no use after err, is
// closed.
func (t *Tx) CloseAfter(err error) {
	if t.lease == nil {
		return
	}
	if t.isLeft() { // fn, or its panic, left a goroutine that is using the tx
		owned := t.sublease() != nil
		conn, release := t.detach() // the pool gets its place back; the connection is never used again
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
	t.leave()
	t.undo()
	t.roleLost = HasCode(err, "42501") && wasAlive(t.conn) && t.hasAnotherRole()
	if (Stale(err) || ReadOnly(err) || t.roleLost) && !pg.IsClosed() {
		// The statements of fn are stale as well, as a rule, and a server that has become a replica stays one. A new
		// connection prepares everything afresh, may find another server, and has the role of the pool.
		within(t.conn, t.engine.Limits.Rollback, t.conn.Close)
	}
	t.release()
}

// undo rolls back what is open on the connection, unless something is still running on it.
func (t *Tx) undo() {
	pg := t.conn.PgConn()
	if !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		within(t.conn, t.engine.Limits.Rollback, func(ctx context.Context) error { return pg.Exec(ctx, "rollback").Close() })
	}
}

// hasAnotherRole reports whether the session has another role than the one that its connection was made with: fn has left a SET ROLE
// behind, which outlasts the transaction.
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

// sublease returns what owns the connection, nil if that is pgx's pool.
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

// detach takes the connection from its pool, which is to have the place back. Where that is not possible, its owner has it back when
// release is called.
func (t *Tx) detach() (conn *pgx.Conn, release func()) {
	lease := t.lease
	t.lease = nil
	if pooled, ok := lease.(interface{ Hijack() *pgx.Conn }); ok {
		return pooled.Hijack(), func() {}
	}
	return lease.Conn(), lease.Release
}

// isLeft reports whether fn has left something behind that may be using the connection.
func (t *Tx) isLeft() bool {
	if t.access != nil && !t.access.end() {
		return true
	}
	sub := t.sublease()
	return sub != nil && sub.IsLost()
}

// leave ends the transaction of another owner of the connection.
func (t *Tx) leave() {
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

// release gives a sound connection back. Plans that are due are made again before that, when no caller waits for it any more.
func (t *Tx) release() {
	t.leave()
	lease, conn := t.lease, t.conn
	t.lease = nil
	if conn.IsClosed() || conn.PgConn().TxStatus() != 'I' || !roundtrip.IsDue(conn) {
		lease.Release()
		return
	}
	limit := t.engine.Limits.Rollback
	go func() {
		defer lease.Release()
		within(conn, limit, func(ctx context.Context) error { return sound(roundtrip.Replan(ctx, conn)) })
	}()
}

// within bounds what f says to the server after the caller's context may have ended. A deadline on the socket costs less
// than a context, and closes the connection all the same.
func within(conn *pgx.Conn, limit time.Duration, f func(context.Context) error) {
	socket := conn.PgConn().Conn()
	_ = socket.SetDeadline(time.Now().Add(limit))
	if f(context.Background()) == nil {
		_ = socket.SetDeadline(time.Time{})
	} else if !conn.IsClosed() {
		discard(conn) // no answer, or one that leaves the transaction as it was
	}
}

// txOnConn is the name under which a connection remembers its pgx.Tx.
const txOnConn = "github.com/idem-go/idem: tx"

// On returns the pgx.Tx through which the transaction of a connection can be used, wherever it was begun. It is not to be committed or
// rolled back.
func On(conn *pgx.Conn) pgx.Tx { return txOf(conn) }

// txOf returns the pgx.Tx through which fn uses whatever transaction the connection is in. pgx makes one only where it
// begins the transaction itself; a batch that begins one, and from which BEGIN was taken before it was sent, makes one and
// sends nothing. It is never committed or rolled back, so it serves the connection for all its life.
func txOf(conn *pgx.Conn) pgx.Tx {
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
