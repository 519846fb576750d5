package txn

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// deadConns counts the dead connections that one Open meets. After a restart of the server all
// connections of a pool are dead. Open skips those without a pause and does not count them as
// failures of the call. A new connection that dies is a failure.
type deadConns struct {
	pool   *pgxpool.Pool
	source Source // if there is no pool
	idle   int    // idle connections of the source when Open met the first dead one
	count  int32
	dials  int64 // by the pool, when Open last met a dead connection that may be new
}

// mayTryAnother counts a dead connection and reports whether Open may take another one. A pool
// cannot have more dead connections than MaxConns.
func (d *deadConns) mayTryAnother() bool {
	d.count++
	return d.pool == nil || d.count <= d.pool.Config().MaxConns
}

// skip reports whether conn, which is dead, was in the pool before this Open. If the pool has
// dialed no connection since the last call, conn is an old one.
func (d *deadConns) skip(conn *pgx.Conn) bool {
	if !d.mayTryAnother() {
		return false
	}
	if wasAlive(conn) {
		return true
	}
	if d.pool == nil {
		return d.skipSourceConn()
	}
	dials := d.pool.Stat().NewConnsCount()
	first := d.dials == 0
	grown := dials > d.dials
	d.dials = dials
	return first || !grown
}

// skipSourceConn skips one connection more than were idle, because a source does not say which
// connections are new.
func (d *deadConns) skipSourceConn() bool {
	if d.count == 1 {
		d.idle = d.source.Idle()
	}
	return int(d.count) <= 1+d.idle
}

// aliveOnConn marks a connection on which a transaction has begun before.
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
