package pgwire

import (
	"errors"
	"net"
	"sync"
)

// Listener accepts connections on a port of the loopback interface and serves each in a goroutine.
type Listener struct {
	tcp     net.Listener
	serving sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
	err    error
}

// Listen starts a listener, which calls the function serve for each connection and closes the
// connection when serve returns.
func Listen(serve func(l *Listener, client net.Conn)) (*Listener, error) {
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	l := &Listener{tcp: tcp, open: map[net.Conn]struct{}{}}
	l.serving.Go(func() { l.accept(serve) })
	return l, nil
}

// Addr returns the address that clients connect to.
func (l *Listener) Addr() *net.TCPAddr { return l.tcp.Addr().(*net.TCPAddr) }

// Keep registers another connection, such as a connection to the server, that Close must close. If
// the listener is already closed, Keep closes the connection and reports false.
func (l *Listener) Keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		conn.Close()
		return false
	}
	l.open[conn] = struct{}{}
	return true
}

// Release closes a connection and unregisters it.
func (l *Listener) Release(conn net.Conn) {
	conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, conn)
}

// Close closes all connections and returns when every call of serve has returned. It returns the
// error with which the listener has stopped accepting connections, if there was one.
func (l *Listener) Close() error {
	l.tcp.Close()
	l.mu.Lock()
	l.closed = true
	for conn := range l.open {
		conn.Close()
	}
	l.mu.Unlock()
	l.serving.Wait()
	return l.err
}

func (l *Listener) accept(serve func(*Listener, net.Conn)) {
	for {
		client, err := l.tcp.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.err = err
				l.tcp.Close() // let the system refuse connections instead of leaving them waiting forever
			}
			return
		}
		l.serving.Go(func() {
			if l.Keep(client) {
				defer l.Release(client)
				serve(l, client)
			}
		})
	}
}
