package pgproxy

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// maxLead bounds how much earlier than asked the alarm is set; what remains of it is spent spinning.
const maxLead = 100 * time.Microsecond

// alarm waits with the precision of the kernel's timers. The runtime's own cannot do that: an idle Go process sleeps in
// epoll_wait, which counts in milliseconds. A timer file descriptor wakes the same epoll_wait within microseconds.
//
// The machine still takes its time to wake up. The alarm learns how long, and is set so much earlier.
type alarm struct {
	mu     sync.Mutex
	timer  *os.File
	fd     uintptr // of timer
	closed bool
	lead   time.Duration
}

// until returns at the given time, or once the alarm has been closed.
func (a *alarm) until(due time.Time) error {
	if wait := time.Until(due) - a.lead; wait > 0 {
		if err := a.sleep(wait); err != nil {
			return err
		}
		late := time.Since(due) + a.lead
		a.lead = min(max(a.lead+(late-a.lead)/8, 0), maxLead)
	}
	for rest := time.Until(due); rest > 0 && rest <= maxLead; rest = time.Until(due) {
		// As a rule a few microseconds: too short for any timer.
	}
	return nil
}

func (a *alarm) sleep(d time.Duration) error {
	err := a.set(d)
	if err == nil {
		var expirations [8]byte
		_, err = a.timer.Read(expirations[:])
	}
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// set creates the timer at its first use: most proxies never delay anything.
func (a *alarm) set(d time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return os.ErrClosed
	case a.timer == nil:
		const clockMonotonic = 1
		fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if errno != 0 {
			return os.NewSyscallError("timerfd_create", errno)
		}
		a.fd, a.timer = fd, os.NewFile(fd, "timerfd")
	}
	spec := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(d))}
	_, _, errno := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, a.fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("timerfd_settime", errno)
	}
	return nil
}

// close ends a wait under way, and every later one.
func (a *alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.timer != nil {
		a.timer.Close()
	}
}
