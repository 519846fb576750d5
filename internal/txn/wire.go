package txn

import (
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/wire"
)

// wireOnConn is the name under which a connection remembers its wire.
const wireOnConn = "github.com/idem-go/idem: wire"

// wireOf returns the socket of a connection, nil if it has none that can be waited on. Nor does it where notices are handled:
// what a handler does to the goroutine that reads, such as to end it, it is not to do to that of the call.
func wireOf(conn *pgx.Conn) *wire.Wire {
	data := conn.PgConn().CustomData()
	if w, ok := data[wireOnConn].(*wire.Wire); ok {
		return w
	}
	var w *wire.Wire
	if conn.Config().OnNotice == nil {
		w = wire.Of(conn.PgConn().Conn())
	}
	data[wireOnConn] = w
	return w
}
