//go:build !linux

package pgproxy

import (
	"sync"
	"time"
)

// alarm waits with the precision of the runtime's timers.
type alarm struct {
	once   sync.Once
	closed chan struct{}
}

func (a *alarm) until(due time.Time) error {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.done():
	}
	return nil
}

// close ends the current wait and every later one.
func (a *alarm) close() {
	select {
	case <-a.done():
	default:
		close(a.closed)
	}
}

func (a *alarm) done() chan struct{} {
	a.once.Do(func() { a.closed = make(chan struct{}) })
	return a.closed
}
