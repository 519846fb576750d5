package pgproxy

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/pgwire"
)

// Conn is one client connection through the proxy. Its methods may still be called after the
// connection has ended.
type Conn struct {
	proxy          *Proxy
	id             int // number of the connection: 1 for the first one that the proxy opened
	client, server net.Conn
	up, down       *pipe // the stream to the server, and the stream to the client
	dialogue       dialogue
	done           chan struct{}
	muted          context.Context // done when nothing more is forwarded; await then returns at once
	mute           func()

	// Used only by the goroutine that reads from the client.
	names      names
	inPipeline bool
}

// newConn takes ownership of two connected sockets. The startup packet of the client, in first, is
// forwarded unchanged.
func newConn(p *Proxy, id int, client, server net.Conn, first []byte) *Conn {
	c := &Conn{proxy: p, id: id, client: client, server: server, done: make(chan struct{}), names: newNames()}
	c.muted, c.mute = context.WithCancel(context.Background())
	c.up = newPipe(c, ToServer, client, server)
	c.down = newPipe(c, ToClient, server, client)
	c.up.hear, c.down.hear = c.fromClient, c.fromServer
	c.dialogue.turns = &p.turns
	c.up.draft.add(first)
	return c
}

// Done returns a channel that is closed when the connection has ended, which is when both sides or
// the proxy have closed it. After a cut the channel stays open until the server has noticed the
// cut. The server does not notice before it has finished the statement that it is executing.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Bytes returns how many bytes were forwarded in one direction since the connection was opened.
func (c *Conn) Bytes(dir Direction) int64 { return c.pipe(dir).sent.Load() }

// Freeze stops forwarding in the given directions, or in both if dirs is empty. Bytes that the
// proxy has already written to a socket still arrive. Everything later, including the end of the
// stream, waits for Resume.
//
// To freeze a connection at an exact point of the traffic, use [Proxy.Arm] with the action
// [Freeze].
func (c *Conn) Freeze(dirs ...Direction) {
	for _, dir := range orBoth(dirs) {
		c.pipe(dir).gate.freeze()
	}
}

// Resume forwards the bytes that Freeze has stopped, in the given directions or, if dirs is empty, in
// both.
func (c *Conn) Resume(dirs ...Direction) {
	for _, dir := range orBoth(dirs) {
		c.pipe(dir).gate.resume()
	}
}

// Cut applies the action to the connection at once. Bytes that the proxy has read and not yet
// forwarded are lost, except with [Freeze]. A connection in a [BlackHole] can still be cut with
// [Reset] or [Hangup].
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

// cut ends the forwarding and, for Reset and Hangup, the connection to the client. Of the
// connection to the server it only closes the sending half, and the pipe reads on until the server
// has seen the end of the stream and closes the socket. Closing the whole socket at once could
// discard bytes that the server has not read yet.
func (c *Conn) cut(how Action) {
	c.mute()
	switch how {
	case Reset:
		pgwire.Reset(c.client)
	case Hangup:
		pgwire.CloseWrite(c.client)
	default:
		return
	}
	pgwire.CloseWrite(c.server)
}

// run forwards both streams and returns when both have ended.
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

// await returns at about the given time, or when the connection is muted.
func (c *Conn) await(due time.Time) {
	const precise = 2 * time.Millisecond // the last part of the wait, which cannot be interrupted
	if wait := time.Until(due) - precise; wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.muted.Done():
			return
		}
	}
	nanosleep(time.Until(due))
}

// kill closes both sockets at once, whatever the connection is doing.
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
