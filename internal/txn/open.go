package txn

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// deadConns counts the dead connections that one Open meets. After a restart of the server all connections of a pool are
// dead: that is no failure of the call, and no reason to pause. One that dies although it is new is both.
type deadConns struct {
	pool  *pgxpool.Pool
	count int32
	dials int64 // by the pool, when the first connection was met that is not known to be old
}

// another reports whether one more connection may be taken. There are no more dead ones than the pool has.
func (d *deadConns) another() bool {
	d.count++
	return d.count <= d.pool.Config().MaxConns
}

// skip reports whether conn, which has died, was in the pool before, so that the next one may be tried at no cost.
func (d *deadConns) skip(conn *pgx.Conn) bool {
	if !d.another() {
		return false
	}
	if wasAlive(conn) {
		return true
	}
	dials := d.pool.Stat().NewConnsCount()
	first := d.dials == 0
	grown := dials > d.dials
	d.dials = dials
	return first || !grown
}

// aliveOnConn marks a connection on which a transaction was once begun here.
const aliveOnConn = "github.com/idem-go/idem: alive"

func markAlive(conn *pgx.Conn) {
	data := conn.PgConn().CustomData()
	if _, ok := data[aliveOnConn]; !ok {
		data[aliveOnConn] = true
	}
}

func wasAlive(conn *pgx.Conn) bool {
	_, ok := conn.PgConn().CustomData()[aliveOnConn]
	return ok
}
