package conform

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
)

// cuttable is a connection that can call a function after its next write. net/http reports an
// HTTP/1 request as written while a part of the request is still in a buffer. Only after the next
// write to the connection has the whole request been sent.
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
