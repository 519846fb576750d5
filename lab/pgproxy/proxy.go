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

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/pgwire"
)

// Proxy listens on a TCP port of the loopback interface and forwards each connection to one server.
type Proxy struct {
	dsn         string
	server      *pgconn.Config
	rewrite     func(sql string) string // may be nil
	listener    *pgwire.Listener
	dialing     context.Context
	stopDialing context.CancelFunc
	latency     atomic.Int64
	turns       atomic.Int64
	traps       traps
	watchers    watchers

	mu      sync.Mutex
	closed  bool
	conns   map[*Conn]struct{}
	opened  int
	refusal *refusal
	err     error
}

// New starts a proxy in front of the server at dsn, which must be a URL. The proxy reaches the
// server over TCP or a Unix socket, with TLS if dsn asks for it. New does not connect to the
// server.
func New(dsn string) (*Proxy, error) { return NewRewriting(dsn, nil) }

// NewRewriting is like New, but the proxy also replaces SQL. The function rewrite gets the text of
// every Parse and Query message, and the server gets the text that rewrite returns.
func NewRewriting(dsn string, rewrite func(sql string) string) (*Proxy, error) {
	server, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	p := &Proxy{server: server, rewrite: rewrite, conns: make(map[*Conn]struct{})}
	p.dialing, p.stopDialing = context.WithCancel(context.Background())
	if p.listener, err = pgwire.Listen(p.serve); err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	if p.dsn, err = redirect(dsn, p.listener.Addr()); err != nil {
		p.listener.Close()
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	return p, nil
}

// Addr returns the address on which the proxy listens.
func (p *Proxy) Addr() net.Addr { return p.listener.Addr() }

// DSN returns the DSN given to New with the proxy's host and port, and with sslmode=disable.
func (p *Proxy) DSN() string { return p.dsn }

// SetLatency delays every byte in both directions by d, so a round trip takes 2·d longer. The delay
// does not limit bandwidth.
//
// A new latency applies to the bytes that the proxy reads from now on. Bytes never overtake each
// other, even if the latency shrinks. The proxy delays all traffic, including authentication,
// except the TCP handshake, a CancelRequest and its own refusal of encryption. It forwards a
// message when the message is complete, so a large message also takes the time that it needs to
// arrive at the proxy.
//
// On Linux the delay is accurate to some tens of microseconds, if the machine is idle.
func (p *Proxy) SetLatency(d time.Duration) { p.latency.Store(int64(d)) }

// Conns returns the open connections, the oldest first, without connections that carry a
// CancelRequest.
func (p *Proxy) Conns() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var conns []*Conn
	for c := range p.conns {
		conns = append(conns, c)
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

// Close ends all connections and returns when every goroutine of the proxy has ended. It returns an
// error if the proxy could not follow the protocol somewhere. After that error, the counts and the
// events are not reliable.
func (p *Proxy) Close() error {
	p.Admit()
	p.stopDialing()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.kill()
	}
	p.mu.Unlock()
	err := p.listener.Close()
	return errors.Join(p.err, err)
}

func (p *Proxy) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}

// serve handles one client connection until it ends.
func (p *Proxy) serve(l *pgwire.Listener, client net.Conn) {
	if p.refuses(client) {
		return
	}
	first, cancel, err := pgwire.Greet(client)
	if err != nil {
		return // the client closed the connection, or does not speak the protocol
	}
	server, err := pgwire.Dial(p.dialing, p.server)
	if err != nil {
		pgwire.Reset(client)
		return
	}
	defer server.Close()
	if cancel {
		if _, err := server.Write(first); err == nil && l.Keep(server) {
			io.Copy(io.Discard, server) // wait until the server has read the CancelRequest, after which it closes the connection
			l.Release(server)
		}
		return
	}
	if c := p.open(client, server, first); c != nil {
		c.run()
	}
}

func (p *Proxy) open(client, server net.Conn, first []byte) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.opened++
	c := newConn(p, p.opened, client, server, first)
	p.conns[c] = struct{}{}
	return c
}

func (p *Proxy) forget(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
