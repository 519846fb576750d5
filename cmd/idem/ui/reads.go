package ui

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	fresh    = time.Second // how old a reading may be
	together = 2           // readings at a time
	longest  = 15 * time.Second
	most     = 64 // readings that are remembered
)

// errBusy says that others look at too many pages.
var errBusy = errors.New("ui: too many pages are being read")

// reads are the readings that viewers share.
type reads struct {
	room chan struct{}

	mu      sync.Mutex
	current map[string]*reading
}

// reading is one look at the database.
type reading struct {
	done chan struct{}
	at   time.Time // when it was begun

	seen seen
	err  error
}

func newReads() *reads {
	return &reads{room: make(chan struct{}, together), current: map[string]*reading{}}
}

// get returns what read returns, or what it has returned to another viewer of the same page within the last second. An error is shared by those who
// have waited for it. A viewer who leaves does not take the reading away from the others.
func (r *reads) get(ctx context.Context, name string, read func(context.Context) (seen, error)) (seen, error) {
	one, mine := r.join(name)
	switch {
	case one == nil:
		return seen{}, errBusy
	case !mine:
		select {
		case <-one.done:
			return one.seen, one.err
		case <-ctx.Done():
			return seen{}, ctx.Err()
		}
	}
	one.err = errBusy // if read panics
	defer close(one.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longest)
	defer cancel()
	select {
	case r.room <- struct{}{}:
		defer func() { <-r.room }()
		one.seen, one.err = read(ctx)
	case <-ctx.Done():
	}
	return one.seen, one.err
}

// join returns the reading of a page, and whether the caller is to make it. It is nil if there are too many.
func (r *reads) join(name string) (one *reading, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.drop(func(old *reading) bool { return old.err != nil || now.Sub(old.at) >= fresh })
	if one = r.current[name]; one != nil {
		return one, false
	}
	if len(r.current) >= most {
		r.drop(func(*reading) bool { return true })
	}
	if len(r.current) >= most {
		return nil, false
	}
	one = &reading{done: make(chan struct{}), at: now}
	r.current[name] = one
	return one, true
}

// drop removes those of the readings that are over for which stale returns true.
func (r *reads) drop(stale func(*reading) bool) {
	for name, old := range r.current {
		select {
		case <-old.done:
			if stale(old) {
				delete(r.current, name)
			}
		default:
		}
	}
}

// forget makes the next viewers read anew: something was changed.
func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = map[string]*reading{}
}
