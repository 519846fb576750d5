package cluster

import (
	"io"
	"net"
	"sync"

	"github.com/idem-go/idem/internal/pgwire"
)

// door is a TCP proxy that forwards its port to one server at a time, like the address of a service
// that fails over.
type door struct {
	listener *pgwire.Listener

	mu     sync.Mutex
	target string // "": refuse connections
	inside map[net.Conn]bool
}

func openDoor(target string) (*door, error) {
	d := &door{target: target, inside: map[net.Conn]bool{}}
	listener, err := pgwire.Listen(d.serve)
	if err != nil {
		return nil, err
	}
	d.listener = listener
	return d, nil
}

func (d *door) address() string { return d.listener.Addr().String() }

// lead closes all connections and forwards new ones to target, or refuses them if target is "".
func (d *door) lead(target string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.target = target
	for conn := range d.inside {
		conn.Close()
	}
}

func (d *door) serve(l *pgwire.Listener, client net.Conn) {
	d.mu.Lock()
	target := d.target
	d.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil {
		pgwire.Reset(client)
		return
	}
	if !l.Keep(server) {
		return
	}
	defer l.Release(server)
	defer d.leave(client, server)
	if d.enter(target, client, server) {
		carry(client, server)
	}
}

// carry copies both directions. It forwards the end of each stream separately, because a client
// that has closed its side may still wait for the answer.
func carry(client, server net.Conn) {
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		io.Copy(to, from)
		pgwire.CloseWrite(to)
	}
	both.Go(func() { pass(server, client) })
	both.Go(func() { pass(client, server) })
	both.Wait()
}

// enter registers the connections. It returns false if the target has changed since they were
// opened.
func (d *door) enter(target string, conns ...net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range conns {
		d.inside[conn] = true
	}
	return d.target == target
}

func (d *door) leave(conns ...net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range conns {
		delete(d.inside, conn)
	}
}
