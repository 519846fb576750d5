//go:build unix

package wire

import (
	"crypto/tls"
	"net"
	"syscall"
)

// Wire is a socket.
type Wire struct {
	// ReadAhead says that the connection is TLS, which takes from the socket whatever has come with an answer, its close_notify too: Arrives
	// does not see that any more.
	ReadAhead bool

	raw   syscall.RawConn
	first [1]byte
	look  func(fd uintptr) bool // w.peek, made once
}

// Of returns the socket of a connection that is one, as it is or under TLS, and nil of any other: something in between may
// have read ahead.
func Of(conn net.Conn) *Wire {
	over, isTLS := conn.(*tls.Conn)
	if isTLS {
		conn = over.NetConn()
	}
	var raw syscall.RawConn
	var err error
	switch socket := conn.(type) {
	case *net.TCPConn:
		raw, err = socket.SyscallConn()
	case *net.UnixConn:
		raw, err = socket.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	w := &Wire{raw: raw, ReadAhead: isTLS}
	w.look = w.peek
	return w
}

// Arrives waits until there is something to read, be it the end. It is false if a deadline of the connection's has ended that,
// or it was closed here. One at a time may wait.
func (w *Wire) Arrives() bool { return w.raw.Read(w.look) == nil }

// peek reports whether there is something to read.
func (w *Wire) peek(fd uintptr) bool {
	for {
		_, _, err := syscall.Recvfrom(int(fd), w.first[:], syscall.MSG_PEEK)
		if err != syscall.EINTR {
			return err != syscall.EAGAIN
		}
	}
}
