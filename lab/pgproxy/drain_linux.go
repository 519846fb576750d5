package pgproxy

import (
	"net"
	"syscall"
	"time"
	"unsafe"
)

// drain waits until the peer's kernel has acknowledged everything that was written to conn. A reset
// discards the bytes in the send buffer, so drain must be called before. drain also returns when
// the connection ends.
func drain(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	for unsent(raw) > 0 {
		time.Sleep(100 * time.Microsecond)
	}
}

// unsent returns the number of bytes in the send buffer that the peer has not acknowledged. It is 0
// once the peer has reset the connection, although the kernel still counts the bytes then.
func unsent(raw syscall.RawConn) (n int32) {
	err := raw.Control(func(fd uintptr) {
		if state(fd) == tcpClose {
			return
		}
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&n)))
		if errno != 0 {
			n = 0
		}
	})
	if err != nil {
		return 0
	}
	return n
}

const tcpClose = 7 // TCP_CLOSE of Linux

// state returns the state of a TCP socket, which is the first byte of TCP_INFO. It returns tcpClose
// if the kernel does not say.
func state(fd uintptr) (s uint8) {
	size := uint32(1)
	_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.IPPROTO_TCP, syscall.TCP_INFO,
		uintptr(unsafe.Pointer(&s)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return tcpClose
	}
	return s
}
