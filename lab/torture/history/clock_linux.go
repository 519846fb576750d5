package history

import (
	"syscall"
	"time"
	"unsafe"
)

// Now is CLOCK_MONOTONIC, which is the same for all processes of a machine. The kernel is asked each time: an offset
// that a process finds out once may be wrong by as long as it was not running meanwhile.
func Now() time.Duration {
	const monotonic = 1
	var now syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(now.Nano())
}
