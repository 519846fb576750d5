package pgproxy

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// alarm waits with the precision of the kernel's timers. The Go runtime is less precise: an idle Go
// process sleeps in epoll_wait with a timeout in milliseconds. A timer file descriptor wakes the
// same epoll_wait within microseconds.
//
// The wakeup itself still takes some microseconds, which depend on the machine. The alarm measures
// them and sets the timer that much earlier. Half of the wakeups are then slightly late and half
// slightly early, so the delay is correct on average. Spinning would be more precise, but it would
// take a processor from the server.
type alarm struct {
	mu     sync.Mutex
	timer  *os.File
	fd     uintptr // of timer
	closed bool
	lead   time.Duration
}

const (
	maxLead  = 100 * time.Microsecond
	leadStep = time.Microsecond
)

// until returns at about the given time, or once the alarm is closed.
func (a *alarm) until(due time.Time) error {
	wait := time.Until(due) - a.lead
	if wait <= 0 {
		return nil
	}
	err := a.sleep(wait)
	// Steps of one size converge to the median of the wakeup time. A single late wakeup on a busy
	// machine does not move the median.
	if time.Since(due) > 0 {
		a.lead = min(a.lead+leadStep, maxLead)
	} else {
		a.lead = max(a.lead-leadStep, 0)
	}
	return err
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

// set starts the timer. It creates the descriptor at the first use, because most proxies have no
// latency.
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

// close ends the current wait and every later one.
func (a *alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.timer != nil {
		a.timer.Close()
	}
}
