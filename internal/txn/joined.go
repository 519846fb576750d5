package txn

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// The savepoint of a joined function. Names may repeat: a Join inside a Join sees only its own.
const (
	setSavepoint     = "savepoint idem"
	undoToSavepoint  = "rollback to savepoint idem"
	releaseSavepoint = "release savepoint idem"

	// abort fails, because there is no such savepoint, and so makes sure that the transaction is never committed.
	abort = "rollback to savepoint idem_rolls_back_what_fn_has_done"
)

// Joined is a function's part in a transaction of the caller's.
type Joined struct {
	Rehearse bool // as Engine.Rehearse

	tx     pgx.Tx
	conn   *pgx.Conn
	limits Limits
	outer  *access // if tx is itself the tx of a fn
	lent   Lent    // if the connection of tx has another owner
	lost   bool    // who has ended the transaction
	access *access // of this fn

	saves bool // this part is to have a savepoint
	open  bool // and has it
}

var errTxClosed = fmt.Errorf("idem: DoTx: the transaction is over: %w", pgx.ErrTxClosed)

// Join makes tx ready for a function. Leave must follow.
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
	j.saves = hasRoom(conn, tx)
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

// borrow keeps another owner of the connection from using it.
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

// usable returns the connection of a transaction that can be joined. A tx that is over must be found out through the tx
// itself: its connection may be in another's transaction by then. An empty batch asks without a round trip.
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

// Open is Prepare and Begin.
func (j *Joined) Open(ctx context.Context, prepared []*roundtrip.Statement, requests ...Request) error {
	if err := j.Prepare(ctx, prepared); err != nil {
		return err
	}
	return j.Begin(ctx, prepared, requests...)
}

// Prepare makes the connection know its statements, and makes plans again that are due: as a rule, there is nothing to send.
// Whatever it sends is under the savepoint: where the schema is missing, or the table is locked, tx must survive that.
func (j *Joined) Prepare(ctx context.Context, prepared []*roundtrip.Statement) error {
	if roundtrip.IsCold(j.conn, prepared) {
		if err := j.underSavepoint(func(ahead ...*roundtrip.Ahead) error {
			return roundtrip.Prepare(ctx, j.conn, prepared, ahead...)
		}); err != nil {
			return err
		}
	}
	if j.saves && roundtrip.IsDue(j.conn) {
		return j.underSavepoint(func(ahead ...*roundtrip.Ahead) error { return roundtrip.Replan(ctx, j.conn, ahead...) })
	}
	return nil
}

// underSavepoint has the savepoint set ahead of what f sends, unless it is set already.
func (j *Joined) underSavepoint(f func(...*roundtrip.Ahead) error) error {
	if !j.saves || j.open {
		return f()
	}
	savepoint := &roundtrip.Ahead{SQL: setSavepoint}
	err := f(savepoint)
	j.open = savepoint.Done
	return Lacking(err)
}

// Begin sends the savepoint, if it is not set yet, and requests: one round trip. If prepared turn out to be stale, they are
// prepared again.
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
	return Lacking(trip.End())
}

// Ask makes a round trip inside the transaction.
func (j *Joined) Ask(ctx context.Context, requests ...Request) error {
	return ask(ctx, j.conn, requests)
}

// Saves reports whether this part of the transaction has a savepoint, by which it can be undone alone.
func (j *Joined) Saves() bool { return j.open }

// Run gives the transaction to fn, as Tx.Run does.
func (j *Joined) Run(name string, fn func(pgx.Tx) (undo bool, err error)) (undo bool, err error) {
	if j.Rehearse || rehearsesAll() {
		fn = rehearsed(j.limits.Rollback, fn)
	}
	g := newGuard(j.tx, name)
	j.access = g.access
	if j.lent == nil {
		return run(j.conn, g, fn)
	}
	undo, err, over := j.apart(g, fn)
	switch {
	case over == nil:
		return judge(j.conn, g, undo, err)
	case g.access.endedByFn || err == nil:
		return undo, Ended("the transaction was over when fn returned", errors.Join(err, over))
	}
	return undo, err
}

// apart runs fn while the owner of the connection may use it. Over is the error of a transaction that has ended meanwhile.
func (j *Joined) apart(g *guard, fn func(pgx.Tx) (bool, error)) (undo bool, err, over error) {
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

// Restart undoes what was done since Open, and sends requests: one round trip. Without a savepoint it is refused.
func (j *Joined) Restart(ctx context.Context, requests ...Request) error {
	switch {
	case j.conn.IsClosed() || j.conn.PgConn().IsBusy():
		return unfit(j.conn)
	case !j.open:
		return fmt.Errorf("%w: fn rejects, and after %d calls in one transaction a call has no savepoint of its own "+
			"by which its writes could be undone: begin one with tx.Begin", ErrAborted, maxSavepoints)
	}
	return j.named(ask(ctx, j.conn, append([]Request{command(undoToSavepoint)}, requests...)))
}

// Complete sends requests and releases the savepoint: one round trip.
func (j *Joined) Complete(ctx context.Context, requests ...Request) error {
	if j.open {
		requests = append(requests, command(releaseSavepoint))
	}
	if err := j.named(ask(ctx, j.conn, requests)); err != nil {
		return err
	}
	if j.open {
		countSavepoint(j.conn, j.tx)
	}
	j.open = false
	return nil
}

// named recognises by its consequences that fn ended the transaction by a statement.
func (j *Joined) named(err error) error {
	if lostSavepoint(err) {
		return Ended("its savepoint is gone", nil)
	}
	return err
}

// Undo takes the caller's transaction back to where Open found it because of cause, and returns cause: or ErrEnded, if there
// is nowhere to go back to. Without a savepoint the transaction is aborted, so that what fn has done is never committed. A
// connection that cannot be brought back to a known state is closed.
func (j *Joined) Undo(cause error) error {
	pg := j.conn.PgConn()
	switch {
	case !j.open && j.access == nil, j.lost: // nothing was done, or nothing is left to undo
		return cause
	case j.access != nil && !j.access.end():
		_ = pg.Conn().Close() // a goroutine of fn is using it: the socket is all that may be touched
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
		return sound(err)
	})
	if len(commands) > 1 && err == nil {
		j.access = nil // nothing is left of fn
	}
	if len(commands) > 1 && lostSavepoint(err) && !errors.Is(cause, ErrEnded) {
		return Ended("a statement of fn did, and began another", cause)
	}
	return cause
}
