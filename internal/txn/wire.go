package txn

import (
	"reflect"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/wire"
)

// wireOnConn is the name under which a connection remembers its wire.
const wireOnConn = "github.com/idem-go/idem: wire"

// wireOf returns the socket of a connection, nil if it has none that can be waited on. Nor does it where the caller handles
// notices, notifications or errors: what a handler does to the goroutine that reads, such as to hold or to end it, it is not to
// do to that of the call.
func wireOf(conn *pgx.Conn) *wire.Wire {
	data := conn.PgConn().CustomData()
	if w, ok := data[wireOnConn].(*wire.Wire); ok {
		return w
	}
	var w *wire.Wire
	if config := conn.Config(); config.OnNotice == nil && isOfPgx(config.OnNotification) && isOfPgx(config.OnPgError) {
		w = wire.Of(conn.PgConn().Conn())
	}
	data[wireOnConn] = w
	return w
}

// isOfPgx reports whether a handler is the one that pgx has where the caller has none.
func isOfPgx(handler any) bool {
	v := reflect.ValueOf(handler)
	return v.IsNil() || strings.HasPrefix(runtime.FuncForPC(v.Pointer()).Name(), "github.com/jackc/pgx/v5")
}
