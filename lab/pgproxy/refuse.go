package pgproxy

import (
	"io"
	"net"

	"github.com/idem-go/idem/internal/pgwire"
)

// refusal is the treatment of new connections between Refuse and Admit.
type refusal struct {
	how  Action
	over chan struct{}
}

// Refuse applies an action to all new connections, including CancelRequests, until Admit is called.
// Reset and Hangup close a new connection at once. BlackHole accepts the connection and never
// answers. Freeze lets the connection wait for Admit and then serves it. Open connections are not
// affected.
func (p *Proxy) Refuse(how Action) {
	p.Admit()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = &refusal{how, make(chan struct{})}
}

// Admit ends the effect of Refuse.
func (p *Proxy) Admit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusal != nil {
		close(p.refusal.over)
		p.refusal = nil
	}
}

// refuses applies the current refusal to a new connection. It returns false if the connection is to
// be served.
func (p *Proxy) refuses(client net.Conn) bool {
	p.mu.Lock()
	r := p.refusal
	p.mu.Unlock()
	if r == nil {
		return false
	}
	switch r.how {
	case Reset:
		pgwire.Reset(client)
	case Hangup:
		pgwire.CloseWrite(client)
		io.Copy(io.Discard, client)
	case BlackHole:
		io.Copy(io.Discard, client)
	case Freeze:
		<-r.over
		return false
	}
	return true
}
