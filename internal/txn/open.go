package txn

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Open takes a connection, begins a transaction and sends requests, in one round trip. It replaces
// connections that died in the pool, that have lost the prepared statements, or whose role was
// changed by SET ROLE. If a hook of the pool discards prepared statements, Open prepares them again
// instead. If a request fails, Open gives the connection back and returns the error.
func (e *Engine) Open(ctx context.Context, requests ...Request) (*Tx, error) {
	t := &Tx{engine: e}
	for dead := (deadConns{pool: e.Pool, source: e.Source}); ; {
		var err error
		if t.lease, err = e.acquire(ctx); err != nil {
			return nil, err
		}
		t.conn = t.lease.Conn()
		err = t.beginInTime(ctx, requests)
		if Discarded(err) && e.hasHook() {
			err = t.beginAnew(ctx, requests)
		}
		if err == nil {
			markAlive(t.conn)
			return t, nil
		}
		goesOn := ctx.Err() == nil && !errors.Is(err, ErrBlocked) && !errors.Is(err, ErrUnanswered)
		skip := goesOn && (t.conn.IsClosed() && dead.skip(t.conn) || wasAlive(t.conn) && Stale(err) && dead.mayTryAnother())
		t.CloseAfter(err)
		if !skip && !(goesOn && t.roleLost && dead.mayTryAnother()) {
			return nil, AsUnsupported(err)
		}
	}
}

// beginAnew prepares the discarded statements again and begins the transaction once more. A new
// connection would not help, because the hook of the pool would discard its statements, too.
func (t *Tx) beginAnew(ctx context.Context, requests []Request) error {
	if t.conn.PgConn().TxStatus() != 'I' {
		if err := ask(ctx, t.conn, []Request{t.rollback()}); err != nil {
			return err
		}
	}
	if t.engine.Pool == nil { // make pgx forget the statements that it has cached for fn, which are discarded as well
		if err := t.conn.DeallocateAll(ctx); err != nil {
			return err
		}
	}
	if err := roundtrip.Renew(ctx, t.conn, t.engine.statements()); err != nil {
		return err
	}
	return t.beginInTime(ctx, requests)
}

// hasHook reports whether code of the application may run on a connection when it leaves the pool
// or returns.
func (e *Engine) hasHook() bool {
	if e.Pool == nil { // another owner of the connections may run any code
		return true
	}
	config := e.Pool.Config()
	//lint:ignore SA1019 an application may still set BeforeAcquire
	return config.AfterRelease != nil || config.PrepareConn != nil || config.BeforeAcquire != nil
}

// cancelLimit is how long the server may take to confirm that the first statements were canceled.
const cancelLimit = time.Second

// beginInTime calls begin with the time limit BeginTimeout. After that time it sends a
// CancelRequest and closes the connection, whatever the server answers. A slow server or a pooler
// may handle the CancelRequest late, when it would cancel a later statement of the connection. The
// error is ErrBlocked if the server confirms that it has canceled the statements, and otherwise
// ErrUnanswered or the error of ctx.
func (t *Tx) beginInTime(ctx context.Context, requests []Request) error {
	if t.engine.BeginTimeout <= 0 {
		return t.begin(ctx, requests)
	}
	pg := t.conn.PgConn()
	cancel := time.AfterFunc(t.engine.BeginTimeout, func() {
		bounded, done := context.WithTimeout(context.Background(), cancelLimit)
		defer done()
		_ = pg.CancelRequest(bounded)
	})
	d := startAnswerDeadline(t.engine.BeginTimeout+cancelLimit, pg.Conn())
	defer d.stop() // even if a notice handler of the application panics
	defer cancel.Stop()
	err := t.begin(ctx, requests)
	d.stop()
	if cancel.Stop() {
		return err
	}
	if !pg.IsClosed() {
		discard(t.conn)
	}
	switch {
	case ctx.Err() != nil:
		return cmp.Or(err, ctx.Err())
	case HasCode(err, queryCanceled):
		return ErrBlocked
	}
	return ErrUnanswered
}

const queryCanceled = "57014"

func (t *Tx) begin(ctx context.Context, requests []Request) error {
	if err := roundtrip.Prepare(ctx, t.conn, t.engine.statements()); err != nil {
		return err
	}
	sub := t.sublease()
	if sub != nil {
		if err := sub.Begin(ctx); err != nil {
			return err
		}
	}
	trip := roundtrip.On(t.conn)
	instead := sub != nil && sub.Chained()
	if instead { // replace the transaction of the other owner, which began without options
		trip.Exec("rollback")
	}
	if t.engine.Options == (pgx.TxOptions{}) {
		trip.Add(begin)
	} else {
		trip.Exec(beginSQL(t.engine.Options))
	}
	queue(trip, requests)
	trip.Send(ctx)
	if instead {
		trip.Skip()
	}
	trip.Skip()
	read(trip, requests)
	return trip.End()
}

// Query makes one round trip outside a transaction.
func (e *Engine) Query(ctx context.Context, requests ...Request) error {
	for dead := (deadConns{pool: e.Pool, source: e.Source}); ; {
		retry, err := e.queryOnce(ctx, requests)
		if !retry || !dead.mayTryAnother() {
			return AsUnsupported(err) // ask wraps its own errors, but Prepare does not
		}
	}
}

// queryOnce makes the round trip on one connection. retry reports whether another connection may
// succeed.
func (e *Engine) queryOnce(ctx context.Context, requests []Request) (retry bool, err error) {
	t := &Tx{engine: e}
	if t.lease, err = e.acquire(ctx); err != nil {
		return false, err
	}
	t.conn = t.lease.Conn()
	if err = roundtrip.Prepare(ctx, t.conn, e.statements()); err == nil {
		err = ask(ctx, t.conn, requests)
	}
	if Stale(err) {
		if err = roundtrip.Renew(ctx, t.conn, e.statements()); err == nil {
			err = ask(ctx, t.conn, requests)
		}
	}
	t.CloseAfter(err)
	return t.roleLost, err
}

// CloseAsking closes the transaction because of err and then sends requests, on the same connection
// if it is still usable. Another connection may lead to another server after a failover, and that
// server may have more or fewer commits.
func (t *Tx) CloseAsking(ctx context.Context, err error, requests ...Request) error {
	engine := t.engine
	if t.lease == nil || t.stillInUse() || t.sublease() != nil || t.conn.PgConn().IsClosed() || t.conn.PgConn().IsBusy() {
		t.CloseAfter(err)
		return engine.Query(ctx, requests...)
	}
	t.undo()
	asked := ask(ctx, t.conn, requests)
	t.CloseAfter(asked)
	return AsUnsupported(asked)
}
