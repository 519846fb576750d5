// Package cutproxy is a TCP proxy with which a test breaks connections to a broker or a database.
package cutproxy

import (
	"io"
	"net"
	"sync"

	"github.com/idem-go/idem/internal/pgwire"
)

// Proxy forwards connections to one address.
type Proxy struct {
	target   string
	listener *pgwire.Listener
	mu       sync.Mutex
	deaf     bool
	open     map[net.Conn]bool // open clients; true if bytes of the client were discarded
}

// New starts a proxy in front of an address. No server has to listen at the address yet.
func New(target string) (*Proxy, error) {
	p := &Proxy{target: target, open: map[net.Conn]bool{}}
	var err error
	p.listener, err = pgwire.Listen(p.serve)
	return p, err
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut breaks all connections. Bytes in flight are lost in both directions.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for client := range p.open {
		client.Close()
	}
}

// Deafen discards everything that clients send from now on, if deaf is true. Clients still receive
// what the server sends. If deaf is false, the proxy forwards again and cuts the connections that
// have lost bytes, because no TCP connection continues after a loss.
func (p *Proxy) Deafen(deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = deaf
	for client, lost := range p.open {
		if lost && !deaf {
			client.Close()
		}
	}
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() { p.listener.Close() }

func (p *Proxy) serve(l *pgwire.Listener, client net.Conn) {
	p.mu.Lock()
	p.open[client] = false
	p.mu.Unlock()
	defer p.forget(client)
	server, err := net.Dial("tcp", p.target)
	if err != nil || !l.Keep(server) {
		return
	}
	defer l.Release(server)
	back := make(chan struct{})
	go func() {
		defer close(back)
		io.Copy(client, server)
		client.Close()
	}()
	p.listen(server, client)
	server.Close()
	<-back
}

// listen forwards what the client sends, unless the proxy is deaf.
func (p *Proxy) listen(server, client net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := client.Read(buffer)
		if n > 0 && p.hears(client) {
			if _, err := server.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) hears(client net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf {
		p.open[client] = true
	}
	return !p.open[client]
}

func (p *Proxy) forget(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, client)
}
