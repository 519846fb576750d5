package txn

import (
	"context"
	"crypto/tls"
	"reflect"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"
)

// discard closes a connection without a message to the server. Unlike CloseSocket it also marks the
// connection as closed for pgx, so that the pool does not hand it out again.
func discard(conn *pgx.Conn) {
	CloseSocket(conn)
	_ = conn.Close(context.Background())
}

// CloseSocket closes the socket of a connection without a message to the server. conn.Close would
// send a CancelRequest, and TLS would send a close_notify. If another goroutine is using the
// connection, its statement fails.
func CloseSocket(conn *pgx.Conn) {
	netConn := conn.PgConn().Conn()
	if over, ok := netConn.(*tls.Conn); ok {
		netConn = over.NetConn()
	}
	_ = netConn.Close()
}

// socketKey is the key of the *socket in the custom data of a connection.
const socketKey = "github.com/idem-go/idem: socket"

// socketOn returns the socket of a connection. It returns nil if it is not possible to wait on the
// socket, or if the application has handlers for notices, notifications or errors. Such a handler
// may block or end the goroutine that reads, so the goroutine of the call must not read.
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

// isOfPgx reports whether handler is nil or the default handler of pgx.
func isOfPgx(handler any) bool {
	v := reflect.ValueOf(handler)
	return v.IsNil() || strings.HasPrefix(runtime.FuncForPC(v.Pointer()).Name(), "github.com/jackc/pgx/v5")
}
