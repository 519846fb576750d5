package txn

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/roundtrip"
)

// Open takes a connection from the pool and begins a transaction on it, together with requests: one round trip. Connections
// that turn out to have died in the pool, or on which somebody has discarded our statements, are skipped. If a request fails,
// the error is returned and the connection is back in the pool.
func (e *Engine) Open(ctx context.Context, requests ...Request) (*Tx, error) {
	t := &Tx{engine: e}
	for dead := (deadConns{pool: e.Pool}); ; {
		var err error
		if t.pooled, err = e.acquire(ctx); err != nil {
			return nil, err
		}
		t.conn = t.pooled.Conn()
		err = t.beginInTime(ctx, requests)
		if err == nil {
			markAlive(t.conn)
			return t, nil
		}
		skip := ctx.Err() == nil && (t.conn.IsClosed() && dead.skip(t.conn) || wasAlive(t.conn) && Stale(err) && dead.another())
		t.CloseAfter(err)
		if !skip {
			return nil, err
		}
	}
}

// beginInTime is begin within the patience of the engine. A CancelRequest leaves the connection sound; one that is under way
// is waited for, or it might reach what comes next.
func (t *Tx) beginInTime(ctx context.Context, requests []Request) error {
	if t.engine.Patience <= 0 {
		return t.begin(ctx, requests)
	}
	t.cancelling.Add(1)
	timer := time.AfterFunc(t.engine.Patience, t.cancelBegin)
	err := t.begin(ctx, requests)
	if timer.Stop() {
		t.cancelling.Done()
		return err
	}
	t.cancelling.Wait()
	if HasCode(err, queryCanceled) && ctx.Err() == nil {
		return ErrBlocked
	}
	return err
}

const queryCanceled = "57014"

func (t *Tx) cancelBegin() {
	defer t.cancelling.Done()
	bounded, cancel := context.WithTimeout(context.Background(), t.engine.Limits.Rollback)
	defer cancel()
	_ = t.conn.PgConn().CancelRequest(bounded)
}

func (t *Tx) begin(ctx context.Context, requests []Request) error {
	if err := roundtrip.Prepare(ctx, t.conn, t.engine.statements()); err != nil {
		return err
	}
	trip := roundtrip.On(t.conn)
	if t.engine.Options == (pgx.TxOptions{}) {
		trip.Add(begin)
	} else {
		trip.Exec(beginSQL(t.engine.Options))
	}
	queue(trip, requests)
	trip.Send(ctx)
	trip.Skip()
	read(trip, requests)
	return trip.End()
}

// Query makes one round trip outside of any transaction.
func (e *Engine) Query(ctx context.Context, requests ...Request) error {
	t := &Tx{engine: e}
	var err error
	if t.pooled, err = e.acquire(ctx); err != nil {
		return err
	}
	t.conn = t.pooled.Conn()
	if err = roundtrip.Prepare(ctx, t.conn, e.statements()); err == nil {
		err = ask(ctx, t.conn, requests)
	}
	t.CloseAfter(err)
	return err
}
