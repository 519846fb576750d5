package cluster

import (
	"io"
	"net"
	"sync"
)

// door is a TCP proxy that forwards its port to one server at a time, like the address of a service
// that fails over.
type door struct {
	listener *net.TCPListener
	serving  sync.WaitGroup

	mu     sync.Mutex
	target string // "": refuse connections
	inside map[net.Conn]struct{}
}

func openDoor(target string) (*door, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	d := &door{listener: listener, target: target, inside: make(map[net.Conn]struct{})}
	d.serving.Go(d.accept)
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
	clear(d.inside)
}

func (d *door) close() error {
	err := d.listener.Close()
	d.lead("")
	d.serving.Wait()
	return err
}

func (d *door) accept() {
	for {
		client, err := d.listener.AcceptTCP()
		if err != nil {
			return
		}
		d.serving.Go(func() { d.serve(client) })
	}
}

func (d *door) serve(client *net.TCPConn) {
	defer client.Close()
	d.mu.Lock()
	target := d.target
	d.mu.Unlock()
	if target == "" {
		client.SetLinger(0)
		return
	}
	server, err := net.Dial("tcp", target)
	if err != nil {
		client.SetLinger(0)
		return
	}
	defer server.Close()
	if d.enter(target, client, server) {
		defer d.leave(client, server)
		carry(client, server.(*net.TCPConn))
	}
}

// carry copies both directions. It forwards the end of each stream separately, because a client
// that has closed its side may still wait for the answer.
func carry(client, server *net.TCPConn) {
	var both sync.WaitGroup
	pass := func(to, from *net.TCPConn) {
		io.Copy(to, from)
		to.CloseWrite()
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
	if d.target != target {
		return false
	}
	for _, conn := range conns {
		d.inside[conn] = struct{}{}
	}
	return true
}

func (d *door) leave(conns ...net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, conn := range conns {
		delete(d.inside, conn)
	}
}
