package txn

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// deadConns counts the dead connections that one Open meets. After a restart of the server all connections of a pool are
// dead: that is no failure of the call, and no reason to pause. One that dies although it is new is both.
type deadConns struct {
	pool   *pgxpool.Pool
	source Source // if there is no pool
	idle   int    // connections that the source had when the first dead one was met
	count  int32
	dials  int64 // by the pool, when the first connection was met that is not known to be old
}

// another reports whether one more connection may be taken. There are no more dead ones than the pool has.
func (d *deadConns) another() bool {
	d.count++
	return d.pool == nil || d.count <= d.pool.Config().MaxConns
}

// skip reports whether conn, which has died, was in the pool before, so that the next one may be tried at no cost.
func (d *deadConns) skip(conn *pgx.Conn) bool {
	if !d.another() {
		return false
	}
	if wasAlive(conn) {
		return true
	}
	if d.pool == nil {
		return d.skipOfSource()
	}
	dials := d.pool.Stat().NewConnsCount()
	first := d.dials == 0
	grown := dials > d.dials
	d.dials = dials
	return first || !grown
}

// skipOfSource skips as many as were idle, and one more: the source does not tell which are new.
func (d *deadConns) skipOfSource() bool {
	if d.count == 1 {
		d.idle = d.source.Idle()
	}
	return int(d.count) <= 1+d.idle
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
