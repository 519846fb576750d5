package pgproxy

import (
	"net"
	"sync"
)

// Conn is one client's connection through the proxy. It stays valid, and keeps its tally, when the connection is over.
type Conn struct {
	proxy          *Proxy
	id             int
	client, server net.Conn
	up, down       *pipe // to the server, to the client
	dialogue       dialogue
	done           chan struct{}

	// Of the goroutine that reads from the client.
	names      names
	inPipeline bool
}

// newConn takes over two connected sockets and the client's first packet, which is forwarded as it is.
func newConn(p *Proxy, id int, client, server net.Conn, first []byte) *Conn {
	c := &Conn{proxy: p, id: id, client: client, server: server, done: make(chan struct{}), names: newNames()}
	c.up = newPipe(c, ToServer, client, server)
	c.down = newPipe(c, ToClient, server, client)
	c.dialogue.total = &p.counters
	c.up.draft.add(first)
	return c
}

// follow makes the proxy understand what goes through c. Without it, bytes are only carried.
func (c *Conn) follow() {
	c.up.hear = c.fromClient
	c.down.hear = c.fromServer
}

// ID numbers the connections of a proxy from 1, in the order in which they were opened.
func (c *Conn) ID() int { return c.id }

// PID is the process id of the server's backend, as pg_stat_activity has it: 0 until the server has told.
func (c *Conn) PID() uint32 { return c.dialogue.pid.Load() }

// Done is closed when the connection is over: both sides have closed it, or the proxy has. After a cut, it is closed when
// the server has noticed, which it does not before it has finished what it was executing.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Bytes is how many bytes have been forwarded in one direction since the connection was opened.
func (c *Conn) Bytes(dir Direction) int64 { return c.pipe(dir).sent.Load() }

// Freeze stops forwarding, in the given directions or in both. What has been handed to the kernel arrives; all that
// comes later, the end of a stream included, waits for Resume.
//
// To freeze a connection at an exact point of its conversation, use [Proxy.Arm] with the action [Freeze].
func (c *Conn) Freeze(dirs ...Direction) {
	for _, dir := range orBoth(dirs) {
		c.pipe(dir).gate.freeze()
	}
}

// Resume forwards what has waited since Freeze, in the given directions or in both, and all that follows.
func (c *Conn) Resume(dirs ...Direction) {
	for _, dir := range orBoth(dirs) {
		c.pipe(dir).gate.resume()
	}
}

// Cut does to the connection what how says, at once: bytes that are under way in the proxy are lost. A connection in a
// [BlackHole] can still be cut by [Reset] or [Hangup].
func (c *Conn) Cut(how Action) {
	if how == Freeze {
		c.Freeze()
		return
	}
	c.cut(how)
}

func (c *Conn) pipe(dir Direction) *pipe {
	if dir == ToServer {
		return c.up
	}
	return c.down
}

// cut leaves the server's side to the server: its half of the stream is drained until it has seen the end of ours and
// closes. Closing at once could take back what it was sent but has not read.
func (c *Conn) cut(how Action) {
	c.mute()
	switch how {
	case Reset:
		reset(c.client)
	case Hangup:
		closeWrite(c.client)
	default:
		return
	}
	closeWrite(c.server)
}

// run returns when both streams have ended.
func (c *Conn) run() {
	var wg sync.WaitGroup
	for _, p := range []*pipe{c.up, c.down} {
		wg.Go(p.read)
		wg.Go(p.forward)
	}
	wg.Wait()
	c.kill()
	c.dialogue.abandon()
	c.proxy.forget(c)
	close(c.done)
}

// mute makes sure that nothing more is forwarded, and nothing waited for.
func (c *Conn) mute() {
	for _, p := range []*pipe{c.up, c.down} {
		p.gate.mute()
		p.alarm.close()
	}
}

// kill ends the connection, whatever it is doing.
func (c *Conn) kill() {
	c.mute()
	c.client.Close()
	c.server.Close()
}

func orBoth(dirs []Direction) []Direction {
	if len(dirs) == 0 {
		return []Direction{ToServer, ToClient}
	}
	return dirs
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// reset closes a TCP connection so that the peer gets RST where it would get FIN.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
