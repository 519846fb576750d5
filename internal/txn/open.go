package txn

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Open takes a connection from the pool and begins a transaction on it, together with requests: one round trip. Connections
// that turn out to have died in the pool, or on which our statements were discarded, or that have another role, are skipped; where a
// hook of the pool discards the statements, they are prepared again. If a request fails, the error is returned and the connection is
// back in the pool.
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
		skip := goesOn && (t.conn.IsClosed() && dead.skip(t.conn) || wasAlive(t.conn) && Stale(err) && dead.another())
		t.CloseAfter(err)
		if !skip && !(goesOn && t.roleLost && dead.another()) {
			return nil, Lacking(err)
		}
	}
}

// beginAnew begins once more, with statements that are prepared again. A new connection would do as well, and better where the
// statements of fn were lost too, but a hook would discard the statements of that one as soon as it comes back.
func (t *Tx) beginAnew(ctx context.Context, requests []Request) error {
	if t.conn.PgConn().TxStatus() != 'I' {
		if err := ask(ctx, t.conn, []Request{t.rollback()}); err != nil {
			return err
		}
	}
	if t.engine.Pool == nil { // where it was no hook, the statements of fn are lost once and for all
		if err := t.conn.DeallocateAll(ctx); err != nil {
			return err
		}
	}
	if err := roundtrip.Renew(ctx, t.conn, t.engine.statements()); err != nil {
		return err
	}
	return t.beginInTime(ctx, requests)
}

// hasHook reports whether the application does something to connections whenever they leave the pool, or come back.
func (e *Engine) hasHook() bool {
	if e.Pool == nil { // another owner may do so
		return true
	}
	config := e.Pool.Config()
	//lint:ignore SA1019 an application may still set BeforeAcquire
	return config.AfterRelease != nil || config.PrepareConn != nil || config.BeforeAcquire != nil
}

// cancelLimit is how long the server may take to say that the first statements were cancelled.
const cancelLimit = time.Second

// beginInTime is begin within the patience of the engine. Then a CancelRequest is sent, and the connection is given up, whatever is
// answered: the request may arrive at any time, be it that the server is slow or that a pooler queues it, and must meet no other
// statement. Only if the server says that it has cancelled the statements were they blocked.
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
	g := startGrace(t.engine.BeginTimeout+cancelLimit, pg.Conn())
	defer g.end() // also if a handler panics
	defer cancel.Stop()
	err := t.begin(ctx, requests)
	g.end()
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
	if instead { // of the owner's transaction, which has no options
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

// Query makes one round trip outside of any transaction.
func (e *Engine) Query(ctx context.Context, requests ...Request) error {
	for dead := (deadConns{pool: e.Pool, source: e.Source}); ; {
		retry, err := e.queryOnce(ctx, requests)
		if !retry || !dead.another() {
			return Lacking(err) // also where nothing could be prepared
		}
	}
}

// queryOnce makes the round trip on one connection. It reports whether another connection may fare better.
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

// CloseAsking closes the transaction because of err, and asks the server that it was on. After a failover another connection may lead to
// another server, which may know more or less than that one.
func (t *Tx) CloseAsking(ctx context.Context, err error, requests ...Request) error {
	engine := t.engine
	if t.lease == nil || t.isLeft() || t.sublease() != nil || t.conn.PgConn().IsClosed() || t.conn.PgConn().IsBusy() {
		t.CloseAfter(err)
		return engine.Query(ctx, requests...)
	}
	t.undo()
	asked := ask(ctx, t.conn, requests)
	t.CloseAfter(asked)
	return Lacking(asked)
}
