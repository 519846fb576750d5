package pgproxy

import (
	"syscall"
	"time"
)

// nanosleep is more precise than time.Sleep, which can be a millisecond late: an idle Go process
// waits in epoll_wait, whose timeout is in milliseconds.
func nanosleep(d time.Duration) {
	const slack = 50 * time.Microsecond // Linux wakes a thread late by about this time
	if d > slack {
		spec := syscall.NsecToTimespec(int64(d - slack))
		syscall.Nanosleep(&spec, nil) //nolint:errcheck // a signal only makes the sleep shorter
	}
}
