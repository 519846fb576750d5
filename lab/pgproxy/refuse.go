package pgproxy

import (
	"io"
	"net"
)

// refusal is how new connections are received while they are refused.
type refusal struct {
	how  Action
	over chan struct{}
}

// Refuse refuses new connections until Admit is called, requests to cancel included. Reset and Hangup close them at
// once, BlackHole accepts them and never says a word, Freeze makes them wait for Admit and then serves them. Connections
// that are open are not touched.
func (p *Proxy) Refuse(how Action) {
	p.Admit()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = &refusal{how, make(chan struct{})}
}

// Admit ends Refuse.
func (p *Proxy) Admit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusal != nil {
		close(p.refusal.over)
		p.refusal = nil
	}
}

// refuses reports whether a new connection has been dealt with.
func (p *Proxy) refuses(client net.Conn) bool {
	p.mu.Lock()
	r := p.refusal
	p.mu.Unlock()
	if r == nil {
		return false
	}
	switch r.how {
	case Reset:
		reset(client)
	case Hangup:
		closeWrite(client)
		io.Copy(io.Discard, client)
	case BlackHole:
		io.Copy(io.Discard, client)
	case Freeze:
		<-r.over
		return false
	}
	return true
}
