package txn

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Open takes a connection, begins a transaction and sends requests, in one round trip. It skips
// connections that died in the pool, that have lost the prepared statements, or that have another
// role. If a hook of the pool discards prepared statements, it prepares them again instead. If a
// request fails, Open gives the connection back and returns the error.
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

// beginAnew prepares the statements again and begins once more. A new connection would not help:
// the hook would discard the statements of that one, too, as soon as it is back in the pool.
func (t *Tx) beginAnew(ctx context.Context, requests []Request) error {
	if t.conn.PgConn().TxStatus() != 'I' {
		if err := ask(ctx, t.conn, []Request{t.rollback()}); err != nil {
			return err
		}
	}
	if t.engine.Pool == nil { // pgx still counts on its own statements for fn, which are lost as well
		if err := t.conn.DeallocateAll(ctx); err != nil {
			return err
		}
	}
	if err := roundtrip.Renew(ctx, t.conn, t.engine.statements()); err != nil {
		return err
	}
	return t.beginInTime(ctx, requests)
}

// hasHook reports whether the application may change connections as they leave the pool or come
// back.
func (e *Engine) hasHook() bool {
	if e.Pool == nil { // the other owner may
		return true
	}
	config := e.Pool.Config()
	//lint:ignore SA1019 an application may still set BeforeAcquire
	return config.AfterRelease != nil || config.PrepareConn != nil || config.BeforeAcquire != nil
}

// cancelLimit is how long the server may take to confirm that the first statements were canceled.
const cancelLimit = time.Second

// beginInTime calls begin. After BeginTimeout it sends a CancelRequest and gives the connection up,
// whatever the server answers. The CancelRequest may arrive at any time, because the server is slow
// or a pooler queues it, and must not meet another statement. Only if the server says that it
// canceled the statements, the error is ErrBlocked.
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
	defer d.stop() // also if a handler of the caller panics
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
	if instead { // end the transaction of the other owner, which has no options
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
			return AsUnsupported(err) // also for an error of Prepare
		}
	}
}

// queryOnce makes the round trip on one connection. retry says that another connection may succeed.
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

// CloseAsking closes the transaction because of err and sends requests on the same connection.
// After a failover another connection may lead to another server, which may have more or fewer
// commits. If the connection cannot be used any more, CloseAsking does use another one.
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
