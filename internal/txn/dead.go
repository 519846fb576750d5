package txn

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// deadConns counts the dead connections that one call of Open gets from the pool. After a restart
// of the server all connections of a pool are dead. Open skips these connections without a pause,
// and they do not count as failures of the call. A new connection that dies is a failure.
type deadConns struct {
	pool   *pgxpool.Pool
	source Source // where connections come from if pool is nil
	idle   int    // idle connections of the source when Open got the first dead connection
	count  int32
	dials  int64 // connections that the pool had dialed at the latest call of skip
}

// mayTryAnother counts a dead connection and reports whether Open may take another one. A pool
// cannot have more dead connections than MaxConns.
func (d *deadConns) mayTryAnother() bool {
	d.count++
	return d.pool == nil || d.count <= d.pool.Config().MaxConns
}

// skip reports whether the dead connection conn may be skipped, because it was in the pool before
// this Open. If the pool has dialed no connection since the previous call of skip, conn is an old
// connection.
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

// skipSourceConn is skip for a Source, which does not say which connections are new. It skips as
// many connections as were idle, and one more.
func (d *deadConns) skipSourceConn() bool {
	if d.count == 1 {
		d.idle = d.source.Idle()
	}
	return int(d.count) <= 1+d.idle
}

// aliveOnConn is the key, in the custom data of a connection, that marks a connection on which a
// transaction has begun before.
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
