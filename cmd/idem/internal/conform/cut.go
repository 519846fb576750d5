package conform

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
)

// cuttable is a connection that can be cut as soon as a request is on its way. net/http reports a request of HTTP/1 as written when it
// is in a buffer, before the last write to the connection.
type cuttable struct {
	net.Conn
	cut atomic.Pointer[context.CancelFunc] // called after the next write
}

func (c *cuttable) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if cut := c.cut.Swap(nil); cut != nil {
		(*cut)()
	}
	return n, err
}

// cutAfterWrite has cancel called when the request that was written to conn has left the process.
func cutAfterWrite(conn net.Conn, cancel context.CancelFunc) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	conn.(*cuttable).cut.Store(&cancel)
}
