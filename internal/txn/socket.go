package txn

import (
	"context"
	"crypto/tls"

	"github.com/jackc/pgx/v5"
)

// CloseSocket ends a connection without a word to the server. It may be called while the connection is in use, which then fails.
func CloseSocket(conn *pgx.Conn) { closeSocket(conn) }

// discard closes a connection without a word to the server, and so that pgx knows: a pool would hand out again what only the
// socket knows to be closed.
func discard(conn *pgx.Conn) {
	closeSocket(conn)
	_ = conn.Close(context.Background())
}

// closeSocket ends a connection without a word to the server. pgx would send a CancelRequest, and TLS takes leave.
func closeSocket(conn *pgx.Conn) {
	socket := conn.PgConn().Conn()
	if over, ok := socket.(*tls.Conn); ok {
		socket = over.NetConn()
	}
	_ = socket.Close()
}
