package faultproxy

import (
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy is a proxy in front of one server. Its methods are safe for concurrent use.
type Proxy struct {
	listener net.Listener
	server   *pgconn.Config
	running  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	frozen  bool // new connections are not answered
	conns   map[*conn]struct{}
	fault   *Fault // nil when there is nothing to do, or it is done
	shot    Shot
	flights int
	commit  int // how many flights came before the first one that was answered by COMMIT, -1 if there was none
	delay   time.Duration
	aborted bool // a transaction was, since the last Arm
	down    bool // no new connection is made
}

// Start starts a proxy in front of the server that config leads to.
func Start(config *pgconn.Config) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, server: config, conns: map[*conn]struct{}{}}
	p.running.Go(p.serve)
	return p, nil
}

// Port is where the proxy listens, on 127.0.0.1.
func (p *Proxy) Port() uint16 { return uint16(p.listener.Addr().(*net.TCPAddr).Port) }

// Close cuts all connections and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.each(nil, (*conn).cut)
	p.running.Wait()
}

// Arm has a fault done to a flight that is still to come, and forgets what an earlier one has come to.
func (p *Proxy) Arm(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.shot, p.flights, p.aborted, p.commit = &f, Shot{}, 0, false, -1
}

// ToCommit returns how many flights came before the first COMMIT since the last Arm, -1 if there was none.
func (p *Proxy) ToCommit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commit
}

// Aborted reports whether a transaction was aborted by the error of a statement since the last Arm.
func (p *Proxy) Aborted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aborted
}

// Disarm lets everything pass again, and returns the outcome of the fault.
func (p *Proxy) Disarm() Shot {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.down = nil, false
	return p.shot
}

// Thaw ends a freeze: the connections are cut, and new ones are made.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	was := p.frozen
	p.frozen = false
	p.mu.Unlock()
	if was {
		p.each(nil, (*conn).cut)
	}
}

// Twin starts another proxy in front of the same server.
func (p *Proxy) Twin() (*Proxy, error) { return Start(p.server) }

// Delay holds every flight that begins later for d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Flights returns how many flights have begun since the last Arm.
func (p *Proxy) Flights() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flights
}

func (p *Proxy) serve() {
	for {
		socket, err := p.listener.Accept()
		if err != nil {
			return
		}
		c := &conn{proxy: p, client: socket, statements: map[string]string{}}
		if !p.keep(c) {
			reset(socket)
			continue
		}
		p.running.Go(func() {
			defer p.drop(c)
			c.carry()
		})
	}
}

func (p *Proxy) keep(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.down {
		return false
	}
	c.frozen = p.frozen
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c *conn) {
	c.cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// each does something to every connection but one.
func (p *Proxy) each(but *conn, do func(*conn)) {
	p.mu.Lock()
	var all []*conn
	for c := range p.conns {
		if c != but {
			all = append(all, c)
		}
	}
	p.mu.Unlock()
	for _, c := range all {
		do(c)
	}
}

// begins is asked when a flight begins. It returns the fault that is to be done to this one, if any.
func (p *Proxy) begins(inTransaction bool, sql string) (fault *Fault, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if f != nil && f.Kind == Conflict && (!inTransaction || endsTransaction(sql)) {
		return nil, p.delay
	}
	p.flights++
	if f == nil || p.flights <= f.At {
		return nil, p.delay
	}
	p.fault, p.shot, p.frozen, p.down = nil, Shot{Fired: true, SQL: sql}, f.Kind.freezes(), f.Kind == Outage
	return f, p.delay
}

// answeredCommit is told that a flight was answered by COMMIT.
func (p *Proxy) answeredCommit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.commit < 0 {
		p.commit = p.flights - 1
	}
}

// committed is told that the flight of the fault has committed something.
func (p *Proxy) committed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shot.Commit = true
}

// isAborted is told that a transaction is aborted.
func (p *Proxy) isAborted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aborted = true
}

// found is told of each connection that a freeze meets whether a transaction is under way on it.
func (p *Proxy) found(open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shot.Open = p.shot.Open || open
}

// reset closes a socket so that the other side notices at once.
func reset(socket net.Conn) {
	if tcp, ok := socket.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	socket.Close()
}
