//go:build unix

package txn

import (
	"crypto/tls"
	"net"
	"syscall"
)

// socket waits for data to arrive on a connection without reading it. A caller that waits for an
// answer can stop waiting and leave the read to another goroutine.
type socket struct {
	// readsAhead is true for TLS, which may read more from the socket than the current answer, such
	// as a close_notify. waitReadable does not notice data that TLS has already read.
	readsAhead bool

	raw   syscall.RawConn
	first [1]byte
	look  func(fd uintptr) bool // the method value s.peek, stored so that a wait does not allocate
}

// socketOf returns the socket of a TCP or Unix connection, also if the connection is under TLS. It
// returns nil for any other type, because a wrapper may have read ahead.
func socketOf(conn net.Conn) *socket {
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
	s := &socket{raw: raw, readsAhead: isTLS}
	s.look = s.peek
	return s
}

// waitReadable waits until there is something to read, including the end of the connection. It
// returns false if a deadline of the connection expired or this process closed the connection. Only
// one goroutine may wait.
func (s *socket) waitReadable() bool { return s.raw.Read(s.look) == nil }

// peek reports whether there is something to read.
func (s *socket) peek(fd uintptr) bool {
	for {
		_, _, err := syscall.Recvfrom(int(fd), s.first[:], syscall.MSG_PEEK)
		if err != syscall.EINTR {
			return err != syscall.EAGAIN
		}
	}
}
