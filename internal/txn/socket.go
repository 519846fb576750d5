package txn

import (
	"context"
	"crypto/tls"
	"reflect"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"
)

// discard closes a connection without a message to the server. Unlike CloseSocket it also informs
// pgx: the pool would hand the connection out again otherwise.
func discard(conn *pgx.Conn) {
	CloseSocket(conn)
	_ = conn.Close(context.Background())
}

// CloseSocket closes the socket of a connection without a message to the server. conn.Close would
// send a CancelRequest, and TLS a close_notify. The connection may be in use, which then fails.
func CloseSocket(conn *pgx.Conn) {
	netConn := conn.PgConn().Conn()
	if over, ok := netConn.(*tls.Conn); ok {
		netConn = over.NetConn()
	}
	_ = netConn.Close()
}

// socketKey is the name under which a connection keeps its *socket.
const socketKey = "github.com/idem-go/idem: socket"

// socketOn returns the socket of a connection. It returns nil if the socket cannot be waited on, or
// if the caller handles notices, notifications or errors: such a handler may block or end the
// goroutine that reads, which must not be the goroutine of the call.
func socketOn(conn *pgx.Conn) *socket {
	data := conn.PgConn().CustomData()
	if s, ok := data[socketKey].(*socket); ok {
		return s
	}
	var s *socket
	if config := conn.Config(); config.OnNotice == nil && isOfPgx(config.OnNotification) && isOfPgx(config.OnPgError) {
		s = socketOf(conn.PgConn().Conn())
	}
	data[socketKey] = s
	return s
}

// isOfPgx reports whether handler is nil or the default of pgx.
func isOfPgx(handler any) bool {
	v := reflect.ValueOf(handler)
	return v.IsNil() || strings.HasPrefix(runtime.FuncForPC(v.Pointer()).Name(), "github.com/jackc/pgx/v5")
}
