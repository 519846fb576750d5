// Package cutproxy is a TCP proxy in front of a broker, whose connections a test breaks.
package cutproxy

import (
	"errors"
	"io"
	"net"
	"sync"
)

// Proxy forwards connections to one address.
type Proxy struct {
	target   string
	listener net.Listener
	mu       sync.Mutex
	deaf     bool
	open     map[net.Conn]bool // whether something of it was thrown away
	closed   bool
	copying  sync.WaitGroup
}

// New starts a proxy in front of this address, on the loopback interface. The target need not listen yet, or always.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: listener, open: map[net.Conn]bool{}}
	p.copying.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut breaks all connections. What was under way is lost, in both directions.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		conn.Close()
	}
}

// Deafen has what clients send thrown away: they hear the server, and the server does not hear them. It holds for all
// connections, until it is called with false. Then those are cut that were not heard: no network loses bytes and goes on.
func (p *Proxy) Deafen(deaf bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = deaf
	for conn, lost := range p.open {
		if lost && !deaf {
			conn.Close()
		}
	}
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Cut()
	p.copying.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		p.copying.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(client, server) {
		return
	}
	defer p.forget(client, server)
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

// listen forwards what the client says, unless the proxy is deaf.
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

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		p.open[conn] = false
	}
	return !p.closed
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.open, conn)
	}
}
