package history

import (
	"syscall"
	"time"
	"unsafe"
)

// Now returns CLOCK_MONOTONIC, which is the same for all processes of a machine. It asks the kernel
// every time. A process that computed an offset once could be stopped in between, and its offset
// would be wrong by that time.
func Now() time.Duration {
	const monotonic = 1
	var now syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(now.Nano())
}
