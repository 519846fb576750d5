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

// unsent returns the number of bytes in the send buffer that the peer has not acknowledged.
func unsent(raw syscall.RawConn) (n int32) {
	err := raw.Control(func(fd uintptr) {
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
