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

// Proxy accepts connections on a TCP port of the loopback interface and carries each to the same server.
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
	sockets map[io.Closer]struct{} // before they belong to a Conn
	conns   map[*Conn]struct{}
	opened  int
	refusal *refusal
	err     error
}

// New starts a proxy in front of the server that dsn leads to, over TCP or over a unix socket. It does not connect.
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

// Addr is where the proxy listens.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// DSN is the DSN given to New, led through the proxy and with sslmode=disable.
func (p *Proxy) DSN() string { return p.dsn }

// SetLatency delays every byte by d, in the given directions or in both: a round trip takes 2·d longer, at any bandwidth.
// It holds for what is read from then on; nothing is overtaken when the latency shrinks. TCP's own handshake and the
// refusal of encryption are not delayed, all else is, authentication included. A message is forwarded when it is
// complete, so that a large one takes the time to arrive at the proxy as well.
//
// The delay is right to some tens of microseconds on Linux, on average, where single bytes can come up to 0.1 ms early
// and, on a busy machine, late: BenchmarkRoundTrip measures it.
func (p *Proxy) SetLatency(d time.Duration, dirs ...Direction) {
	for _, dir := range orBoth(dirs) {
		p.delay[dir].Store(int64(d))
	}
}

func (p *Proxy) latency(dir Direction) time.Duration { return time.Duration(p.delay[dir].Load()) }

// Conns are the connections that are not over, the oldest first.
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

// Cut cuts all connections that are not over: see [Conn.Cut].
func (p *Proxy) Cut(how Action) {
	for _, c := range p.Conns() {
		c.Cut(how)
	}
}

// Close ends all connections and returns when every goroutine of the proxy has. Its error says where the proxy could not
// follow the protocol: what it counted and reported is then not to be trusted.
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
			p.listener.Close() // better refused than kept waiting
			return
		}
		p.goroutines.Go(func() { p.serve(client) })
	}
}

// serve carries one connection from its first byte to its last.
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
		return // a client that went away, or that is none
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

// keep remembers a socket for Close. It reports false if Close has been called.
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
