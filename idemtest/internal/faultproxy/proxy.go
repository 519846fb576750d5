package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/pgwire"
)

// Proxy is a proxy in front of one Postgres server. Its methods are safe for concurrent use.
type Proxy struct {
	listener    *pgwire.Listener
	server      *pgconn.Config
	dialing     context.Context
	stopDialing context.CancelFunc

	mu      sync.Mutex
	closed  bool
	frozen  bool // new connections get no answer
	conns   map[*conn]struct{}
	fault   *Fault // the armed fault; nil before Arm, and after the fault has fired
	result  Result
	flights int
	// commit is the number of flights before the first flight that the server answered with COMMIT.
	// It is -1 if there was no COMMIT.
	commit  int
	delay   time.Duration
	aborted bool // a statement has aborted a transaction since the last Arm
	down    bool // new connections are refused
}

// Start starts a proxy that forwards to the server in config.
func Start(config *pgconn.Config) (*Proxy, error) {
	p := &Proxy{server: config, conns: map[*conn]struct{}{}}
	p.dialing, p.stopDialing = context.WithCancel(context.Background())
	var err error
	p.listener, err = pgwire.Listen(p.serve)
	return p, err
}

// Port returns the port on 127.0.0.1 on which the proxy listens.
func (p *Proxy) Port() uint16 { return uint16(p.listener.Addr().Port) }

// Close closes all connections and waits until all goroutines of the proxy have ended.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stopDialing()
	p.each(nil, (*conn).cut)
	p.listener.Close()
}

// Arm sets the fault to inject into a later flight, resets the counters and clears the outcome of
// the previous fault.
func (p *Proxy) Arm(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.result, p.flights, p.aborted, p.commit = &f, Result{}, 0, false, -1
}

// ToCommit returns the number of flights of statements between the last call of Arm and the first
// COMMIT after it. It returns -1 if there was no COMMIT.
func (p *Proxy) ToCommit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commit
}

// Aborted reports whether the error of a statement has aborted a transaction since the last call of
// Arm.
func (p *Proxy) Aborted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aborted
}

// Disarm removes the fault that Arm has set, ends an outage, and returns the outcome of the fault.
func (p *Proxy) Disarm() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault, p.down = nil, false
	return p.result
}

// Thaw ends the fault Freeze or FreezeAfter: it closes the frozen connections and accepts new
// connections.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	was := p.frozen
	p.frozen = false
	p.mu.Unlock()
	if was {
		p.each(nil, (*conn).cut)
	}
}

// Twin starts another Proxy in front of the same server.
func (p *Proxy) Twin() (*Proxy, error) { return Start(p.server) }

// Delay delays every later flight of statements by d. Delay(0) ends the delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Flights returns the number of flights of statements that have begun since the last call of Arm.
func (p *Proxy) Flights() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flights
}

// serve serves one connection of a client until the connection ends.
func (p *Proxy) serve(_ *pgwire.Listener, client net.Conn) {
	c := &conn{proxy: p, client: client, statements: map[string]string{}}
	if !p.register(c) {
		pgwire.Reset(client)
		return
	}
	defer p.remove(c)
	c.serve()
}

// register adds c to the open connections. It returns false if the proxy is closed or simulates an
// outage.
func (p *Proxy) register(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.down {
		return false
	}
	c.frozen = p.frozen
	p.conns[c] = struct{}{}
	return true
}

// remove closes c and removes it from the open connections.
func (p *Proxy) remove(c *conn) {
	c.cut()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// each calls do(c) for every connection c, except for the connection in the parameter but. It
// unlocks p.mu before these calls, because do may call methods of p.
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

// beginFlight counts a flight that is about to be sent. It returns the fault for this flight, or
// nil, and the delay. While the fault is a Conflict, beginFlight does not count a ROLLBACK or a
// flight outside a transaction, because the server never answers those with a serialization
// failure.
func (p *Proxy) beginFlight(inTransaction bool, sql string) (fault *Fault, delay time.Duration) {
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
	p.fault, p.result, p.frozen, p.down = nil, Result{Fired: true, SQL: sql}, f.Kind.freezes(), f.Kind == Outage
	return f, p.delay
}

// recordCommit records that the server answered a flight with COMMIT. ofFault says that the fault
// was injected into this flight.
func (p *Proxy) recordCommit(ofFault bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.commit < 0 {
		p.commit = p.flights - 1
	}
	p.result.Commit = p.result.Commit || ofFault
}

// recordAborted records that a statement has aborted a transaction.
func (p *Proxy) recordAborted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.aborted = true
}

// recordOpen records whether a connection had an open transaction when the fault Freeze or
// FreezeAfter fired.
func (p *Proxy) recordOpen(open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Open = p.result.Open || open
}
