package history

import (
	"syscall"
	"time"
	"unsafe"
)

// Now returns CLOCK_MONOTONIC, which is the same for all processes of a machine. It asks the kernel
// every time, instead of adding an offset that was computed once: a process that is stopped during
// that computation would get a wrong offset.
func Now() time.Duration {
	const monotonic = 1
	var now syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(now.Nano())
}
