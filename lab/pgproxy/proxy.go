package pgproxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy listens on a TCP port of the loopback interface and forwards each connection to one server.
type Proxy struct {
	dsn              string
	network, address string // of the server
	listener         *net.TCPListener
	dialing          context.Context
	stopDialing      context.CancelFunc
	delay            [2]atomic.Int64
	counters         counters
	traps            traps
	watchers         watchers
	goroutines       sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	sockets map[io.Closer]struct{} // accepted sockets, so that Close can end them before they belong to a Conn
	conns   map[*Conn]struct{}
	opened  int
	refusal *refusal
	err     error
}

// New starts a proxy in front of the server that dsn names. It reaches the server over TCP or a
// Unix socket. New does not connect to the server. It fails if dsn requires TLS.
func New(dsn string) (*Proxy, error) {
	network, address, err := Upstream(dsn)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	redirected, err := Redirect(dsn, listener.Addr().(*net.TCPAddr))
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	p := &Proxy{
		dsn: redirected, network: network, address: address, listener: listener,
		sockets: make(map[io.Closer]struct{}), conns: make(map[*Conn]struct{}),
	}
	p.dialing, p.stopDialing = context.WithCancel(context.Background())
	p.goroutines.Go(p.accept)
	return p, nil
}

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// DSN returns the DSN given to New with the proxy's host and port, and with sslmode=disable.
func (p *Proxy) DSN() string { return p.dsn }

// SetLatency delays every byte by d in the given directions, or in both if dirs is empty. With
// both, a round trip takes 2·d longer. The delay does not limit bandwidth.
//
// A new latency applies to the bytes that the proxy reads from now on. Bytes never overtake each
// other, even if the latency shrinks. The proxy delays all traffic, including authentication,
// except the TCP handshake and its own refusal of encryption. It forwards a message when the
// message is complete, so a large message also takes the time that it needs to arrive at the proxy.
//
// On Linux the delay is accurate to some tens of microseconds on average. A single byte can be up
// to 0.1 ms early, and late on a busy machine. BenchmarkRoundTrip measures the accuracy.
func (p *Proxy) SetLatency(d time.Duration, dirs ...Direction) {
	for _, dir := range orBoth(dirs) {
		p.delay[dir].Store(int64(d))
	}
}

func (p *Proxy) latency(dir Direction) time.Duration { return time.Duration(p.delay[dir].Load()) }

// Conns returns the open connections, the oldest first. Connections that carry a CancelRequest are
// not among them.
func (p *Proxy) Conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var conns []*Conn
	for c := range p.conns {
		if c.up.hear != nil {
			conns = append(conns, c)
		}
	}
	slices.SortFunc(conns, func(a, b *Conn) int { return cmp.Compare(a.id, b.id) })
	return conns
}

// Cut calls [Conn.Cut] on all open connections.
func (p *Proxy) Cut(how Action) {
	for _, c := range p.Conns() {
		c.Cut(how)
	}
}

// Close ends all connections and returns when every goroutine of the proxy has ended. Its error
// reports where the proxy could not follow the protocol. After such an error the counts and the
// events are not reliable.
func (p *Proxy) Close() error {
	p.Admit()
	p.stopDialing()
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for s := range p.sockets {
		s.Close()
	}
	for c := range p.conns {
		c.kill()
	}
	p.mu.Unlock()
	p.goroutines.Wait()
	return p.err
}

func (p *Proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.fail(fmt.Errorf("pgproxy: %w", err))
			p.listener.Close() // a refused connection is better than one that waits forever
			return
		}
		p.goroutines.Go(func() { p.serve(client) })
	}
}

// serve handles one client from its first byte to its last.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	if !p.keep(client) {
		return
	}
	defer p.release(client)
	if p.refuses(client) {
		return
	}
	first, cancel, err := greet(client)
	if err != nil {
		return // the client closed the connection, or does not speak the protocol
	}
	server, err := new(net.Dialer).DialContext(p.dialing, p.network, p.address)
	if err != nil {
		reset(client)
		return
	}
	defer server.Close()
	if c := p.open(client, server, first, cancel); c != nil {
		c.run()
	}
}

// keep registers a socket that Close has to close. It reports false if the proxy is closed.
func (p *Proxy) keep(s io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.sockets[s] = struct{}{}
	return true
}

func (p *Proxy) release(s io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sockets, s)
}

func (p *Proxy) open(client, server net.Conn, first []byte, cancel bool) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	id := 0
	if !cancel {
		p.opened++
		id = p.opened
	}
	c := newConn(p, id, client, server, first)
	if !cancel {
		c.follow()
	}
	p.conns[c] = struct{}{}
	return c
}

func (p *Proxy) forget(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
