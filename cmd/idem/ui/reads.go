package ui

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	fresh    = time.Second // maximum age of a reading that is shared
	together = 2           // maximum number of concurrent readings
	longest  = 15 * time.Second
	most     = 64 // maximum number of readings in memory
)

// errBusy is returned if too many pages are being read.
var errBusy = errors.New("ui: too many pages are being read")

// reads shares readings of the database between viewers, and limits their number.
type reads struct {
	room chan struct{}

	mu      sync.Mutex
	current map[string]*reading
}

// reading is a reading that is in progress or finished.
type reading struct {
	done chan struct{}
	at   time.Time // time of its beginning

	seen seen
	err  error
}

func newReads() *reads {
	return &reads{room: make(chan struct{}, together), current: map[string]*reading{}}
}

// get returns the result of read, or of a reading of the same page that began within the last
// second. Viewers who wait for a reading also share its error. The reading continues if the viewer
// who started it leaves.
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
	one.err = errBusy // kept if read panics
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

// join returns the reading of a page, and whether the caller has to make it. It returns nil if
// there are too many readings.
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

// drop removes the finished readings for which stale returns true.
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

// forget drops all readings after a change. The next viewer of each page reads again.
func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = map[string]*reading{}
}
