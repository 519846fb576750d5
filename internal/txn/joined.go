package txn

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// The commands for the savepoint under which a function runs in a caller's transaction. A Join
// inside a Join uses the same name, because Postgres takes the innermost savepoint of a name.
const (
	setSavepoint     = "savepoint idem"
	undoToSavepoint  = "rollback to savepoint idem"
	releaseSavepoint = "release savepoint idem"

	// abort is a statement that fails on purpose, because no savepoint has that name. The server
	// then aborts the transaction, so that it can no longer be committed.
	abort = "rollback to savepoint idem_rolls_back_what_fn_has_done"
)

// Joined is the part of a caller's transaction that belongs to one function.
type Joined struct {
	Rehearse bool // run fn twice, as with Engine.Rehearse

	tx     pgx.Tx
	conn   *pgx.Conn
	limits Limits
	outer  *access // the access of tx, if tx is the tx of an outer fn
	lent   Lent    // tx, if its connection has another owner, such as database/sql
	lost   bool    // the other owner has ended the transaction
	access *access // the access of this function

	saves bool // this part uses a savepoint
	open  bool // the savepoint is set
}

var errTxClosed = fmt.Errorf("idem: DoTx: the transaction is over: %w", pgx.ErrTxClosed)

// Join prepares tx, a transaction of the caller, for a function. If Join succeeds, the caller must
// call Leave in the end.
func Join(ctx context.Context, tx pgx.Tx, limits Limits) (*Joined, error) {
	j := &Joined{tx: tx, limits: limits}
	if g, ok := tx.(*guard); ok {
		if !g.access.enter() {
			return nil, errTxClosed
		}
		j.outer = g.access
	}
	if err := j.borrow(tx); err != nil {
		return nil, err
	}
	conn, err := usable(ctx, tx)
	if err != nil {
		j.Leave()
		return nil, err
	}
	j.conn = conn
	j.saves = savepointsLeft(conn, tx)
	return j, nil
}

// Leave ends the use of tx.
func (j *Joined) Leave() {
	if j.lent != nil && !j.lost {
		j.lent.Return()
	}
	if j.outer != nil {
		j.outer.leave()
	}
}

// borrow keeps another owner of the connection, such as database/sql, from using the connection.
func (j *Joined) borrow(tx pgx.Tx) error {
	lent := LentOf(tx)
	if lent == nil {
		return nil
	}
	if err := lent.Borrow(); err != nil {
		if j.outer != nil {
			j.outer.leave()
		}
		return fmt.Errorf("%w: %w", errTxClosed, err)
	}
	j.lent = lent
	return nil
}

// usable returns the connection of tx. It fails if tx cannot be joined. The state of the connection
// does not show whether tx has ended, because the connection may already be in another caller's
// transaction. So usable sends an empty batch through tx, which makes no round trip and fails if tx
// has ended.
func usable(ctx context.Context, tx pgx.Tx) (*pgx.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := tx.SendBatch(ctx, &pgx.Batch{}).Close(); err != nil {
		return nil, fmt.Errorf("idem: DoTx: %w", err)
	}
	conn := tx.Conn()
	switch {
	case conn == nil || conn.IsClosed():
		return nil, errTxClosed
	case conn.PgConn().IsBusy():
		return nil, errors.New("idem: DoTx: the transaction has open rows; read or close them first")
	}
	switch conn.PgConn().TxStatus() {
	case 'T':
		return conn, nil
	case 'E':
		return nil, errors.New("idem: DoTx: the transaction is aborted by an earlier error; roll it back")
	default:
		return nil, errTxClosed
	}
}

// Open calls Prepare and Begin.
func (j *Joined) Open(ctx context.Context, prepared []*roundtrip.Statement, requests ...Request) error {
	if err := j.Prepare(ctx, prepared); err != nil {
		return err
	}
	return j.Begin(ctx, prepared, requests...)
}

// Prepare makes the connection prepare the given statements, and renews plans that are too old.
// Usually nothing has to be sent. Otherwise Prepare works under the savepoint, so that tx survives
// an error, such as a missing schema or a locked table.
func (j *Joined) Prepare(ctx context.Context, prepared []*roundtrip.Statement) error {
	if roundtrip.MustPrepare(j.conn, prepared) {
		if err := j.underSavepoint(func(ahead ...*roundtrip.Ahead) error {
			return roundtrip.Prepare(ctx, j.conn, prepared, ahead...)
		}); err != nil {
			return err
		}
	}
	if j.saves && roundtrip.MustReplan(j.conn) {
		return j.underSavepoint(func(ahead ...*roundtrip.Ahead) error { return roundtrip.Replan(ctx, j.conn, ahead...) })
	}
	return nil
}

// underSavepoint calls f. If the savepoint is not set yet, f gets the command that sets it and
// sends this command ahead of its own statements.
func (j *Joined) underSavepoint(f func(...*roundtrip.Ahead) error) error {
	if !j.saves || j.open {
		return f()
	}
	savepoint := &roundtrip.Ahead{SQL: setSavepoint}
	err := f(savepoint)
	j.open = savepoint.Done
	return AsUnsupported(err)
}

// Begin sets the savepoint, if it is not set yet, and sends requests, in one round trip. If
// prepared statements are stale, Begin prepares them again and repeats the round trip.
func (j *Joined) Begin(ctx context.Context, prepared []*roundtrip.Statement, requests ...Request) error {
	err := j.sendOpen(ctx, requests)
	if err == nil {
		markAlive(j.conn)
	}
	if !Stale(err) || !j.open {
		return err
	}
	if err := execute(ctx, j.conn, undoToSavepoint); err != nil {
		return err
	}
	if err := roundtrip.Renew(ctx, j.conn, prepared); err != nil {
		return err
	}
	return j.sendOpen(ctx, requests)
}

func (j *Joined) sendOpen(ctx context.Context, requests []Request) error {
	trip := roundtrip.On(j.conn)
	sets := j.saves && !j.open
	if sets {
		trip.Exec(setSavepoint)
	}
	queue(trip, requests)
	trip.Send(ctx)
	if sets {
		trip.Skip()
		j.open = trip.Err() == nil
	}
	read(trip, requests)
	return AsUnsupported(trip.End())
}

// Ask makes a round trip inside the transaction.
func (j *Joined) Ask(ctx context.Context, requests ...Request) error {
	return ask(ctx, j.conn, requests)
}

// Saves reports whether a savepoint is set, so that this part can be undone alone.
func (j *Joined) Saves() bool { return j.open }

// Run calls fn with the transaction, like Tx.Run.
func (j *Joined) Run(name string, fn func(pgx.Tx) (undo bool, err error)) (undo bool, err error) {
	if j.Rehearse || rehearsesAll() {
		fn = rehearsed(j.limits.Rollback, fn)
	}
	g := newGuard(j.tx, name)
	j.access = g.access
	if j.lent == nil {
		undo, err = fn(g)
		return checkState(j.conn, g, undo, err)
	}
	undo, err, over := j.runLent(g, fn)
	switch {
	case over == nil:
		return checkState(j.conn, g, undo, err)
	case g.access.endedByFn || err == nil:
		return undo, Ended("the transaction was over when fn returned", errors.Join(err, over))
	}
	return undo, err
}

// runLent lets the other owner use the connection while fn runs. If the transaction has ended
// meanwhile, over is the error that says so.
func (j *Joined) runLent(g *guard, fn func(pgx.Tx) (bool, error)) (undo bool, err, over error) {
	j.lent.Return()
	defer func() { // also if fn panics
		if over = j.lent.Borrow(); over != nil {
			g.access.end()
			j.lost = true
		}
	}()
	undo, err = fn(g)
	return undo, err, nil
}

// Restart rolls back to the savepoint and sends requests, in one round trip. Without a savepoint it
// returns ErrAborted.
func (j *Joined) Restart(ctx context.Context, requests ...Request) error {
	switch {
	case j.conn.IsClosed() || j.conn.PgConn().IsBusy():
		return notCommittable(j.conn)
	case !j.open:
		return fmt.Errorf("%w: fn rejects, and after %d calls in one transaction a call has no savepoint of its own "+
			"by which its writes could be undone: begin one with tx.Begin", ErrAborted, maxSavepoints)
	}
	return j.checkSavepoint(ask(ctx, j.conn, append([]Request{command(undoToSavepoint)}, requests...)))
}

// Complete sends requests and releases the savepoint, in one round trip.
func (j *Joined) Complete(ctx context.Context, requests ...Request) error {
	if j.open {
		requests = append(requests, command(releaseSavepoint))
	}
	if err := j.checkSavepoint(ask(ctx, j.conn, requests)); err != nil {
		return err
	}
	if j.open {
		countSavepoint(j.conn, j.tx)
	}
	j.open = false
	return nil
}

// checkSavepoint returns ErrEnded if err says that the savepoint is gone: fn has ended the
// transaction by a statement. Otherwise it returns err.
func (j *Joined) checkSavepoint(err error) error {
	if lostSavepoint(err) {
		return Ended("its savepoint is gone", nil)
	}
	return err
}

// Undo rolls back to the savepoint because of cause, and returns cause. It returns ErrEnded if the
// savepoint is gone. If there is no savepoint, it aborts the transaction, so that the writes of fn
// are never committed. It closes a connection that it cannot bring into a known state.
func (j *Joined) Undo(cause error) error {
	pg := j.conn.PgConn()
	switch {
	case !j.open && j.access == nil, j.lost: // nothing was written, or the transaction has ended
		return cause
	case j.access != nil && !j.access.end():
		_ = pg.Conn().Close() // a goroutine of fn uses the connection, so only the socket may be closed
		return cause
	case pg.IsClosed():
		return cause
	case pg.IsBusy():
		_ = j.conn.Close(context.Background())
		return cause
	case pg.TxStatus() == 'I':
		return cause
	}
	commands := []string{undoToSavepoint, releaseSavepoint}
	if !j.open {
		commands = []string{abort}
	}
	j.open = false
	var err error
	within(j.conn, j.limits.Rollback, func(ctx context.Context) error {
		err = execute(ctx, j.conn, commands...)
		return ignoreRefusal(err)
	})
	if len(commands) > 1 && err == nil {
		j.access = nil // no writes of fn are left
	}
	if len(commands) > 1 && lostSavepoint(err) && !errors.Is(cause, ErrEnded) {
		return Ended("a statement of fn did, and began another", cause)
	}
	return cause
}

// maxSavepoints is how many functions of one transaction run under a savepoint. A savepoint with
// writes remains a subtransaction until the end of the transaction. Above 64 subtransactions in one
// transaction, every snapshot on the server becomes slower.
const maxSavepoints = 32

// savepoints counts the savepoints of a transaction. It is stored in the custom data of the
// connection.
type savepoints struct {
	tx    pgx.Tx
	count int
}

const savepointsOnConn = "github.com/idem-go/idem: savepoints"

// savepointsLeft reports whether tx may have another savepoint.
func savepointsLeft(conn *pgx.Conn, tx pgx.Tx) bool {
	s, ok := conn.PgConn().CustomData()[savepointsOnConn].(*savepoints)
	return !ok || !same(s.tx, tx) || s.count < maxSavepoints
}

func countSavepoint(conn *pgx.Conn, tx pgx.Tx) {
	data := conn.PgConn().CustomData()
	s, ok := data[savepointsOnConn].(*savepoints)
	if !ok || !same(s.tx, tx) {
		s = &savepoints{tx: tx}
		data[savepointsOnConn] = s
	}
	s.count++
}

// same reports whether a and b are the same transaction. Either may have a type of the application
// that is not comparable, for which == would panic.
func same(a, b pgx.Tx) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
