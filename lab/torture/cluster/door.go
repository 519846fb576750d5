package cluster

import (
	"io"
	"net"
	"sync"
)

// door is a port that leads to one server at a time, as the address of a service does that fails over.
type door struct {
	listener *net.TCPListener
	serving  sync.WaitGroup

	mu     sync.Mutex
	target string // empty: closed
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

// lead cuts all connections and leads new ones to another server, or to none.
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

// carry passes each end of a stream on by itself: a client that has sent all may still want the answer.
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

// enter reports false if the door has been turned meanwhile.
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
