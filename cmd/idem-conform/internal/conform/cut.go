package conform

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
)

// cuttable is a connection that can call a function after its next write. net/http reports a
// request of HTTP/1 as written while it is still in a buffer, before the last write to the
// connection.
type cuttable struct {
	net.Conn
	cut atomic.Pointer[context.CancelFunc] // called once, after the next write
}

func (c *cuttable) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if cut := c.cut.Swap(nil); cut != nil {
		(*cut)()
	}
	return n, err
}

// cutAfterWrite arranges for cancel to be called as soon as the request that net/http wrote to conn
// has left the process.
func cutAfterWrite(conn net.Conn, cancel context.CancelFunc) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	conn.(*cuttable).cut.Store(&cancel)
}
