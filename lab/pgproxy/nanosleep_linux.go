package pgproxy

import (
	"syscall"
	"time"
)

// nanosleep is more precise than time.Sleep: an idle Go process waits in epoll_wait, whose timeout
// has milliseconds.
func nanosleep(d time.Duration) {
	const slack = 50 * time.Microsecond // by which Linux wakes a thread late
	if d > slack {
		spec := syscall.NsecToTimespec(int64(d - slack))
		syscall.Nanosleep(&spec, nil) //nolint:errcheck // a signal only shortens it
	}
}
