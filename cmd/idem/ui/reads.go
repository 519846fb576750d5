package ui

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	freshFor       = time.Second // maximum age of a shared reading
	maxReadings    = 2           // maximum number of readings in progress
	maxReadingTime = 15 * time.Second
	maxCached      = 64 // maximum number of cached readings
)

// errBusy means that too many pages are being read from the database.
var errBusy = errors.New("ui: too many pages are being read")

// reads caches the data of pages for a second, so that viewers of the same page share one reading
// of the database.
type reads struct {
	room chan struct{} // one element for each reading in progress

	mu      sync.Mutex
	current map[string]*reading
}

// reading is the data of a page, read from the database once. The channel done is closed when the
// data has been read.
type reading struct {
	done chan struct{}
	at   time.Time // when the reading began

	seen seen
	err  error
}

// newReads returns an empty cache.
func newReads() *reads {
	return &reads{room: make(chan struct{}, maxReadings), current: map[string]*reading{}}
}

// get returns the result of the function read for a page. It shares a reading that another viewer
// has in progress, or that began within the last second. An error is shared only by the viewers who
// waited for the reading.
//
// The first request for a page calls read. The call continues if the browser of this request
// disconnects, because other viewers may wait for the result. At most two calls run at a time. get
// returns errBusy if a call cannot begin in time, or if too many pages are being read.
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
	one.err = errBusy // the result if read panics, or cannot begin in time
	defer close(one.done)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxReadingTime)
	defer cancel()
	select {
	case r.room <- struct{}{}:
		defer func() { <-r.room }()
		one.seen, one.err = read(ctx)
	case <-ctx.Done():
	}
	return one.seen, one.err
}

// join returns the reading of a page. If mine is true, the reading is new and the caller must
// execute it. join returns nil if too many readings are in progress. If the cache is full, it drops
// all finished readings.
func (r *reads) join(name string) (one *reading, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.drop(func(old *reading) bool { return old.err != nil || now.Sub(old.at) >= freshFor })
	if one = r.current[name]; one != nil {
		return one, false
	}
	if len(r.current) >= maxCached {
		r.drop(func(*reading) bool { return true })
	}
	if len(r.current) >= maxCached {
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

// forget drops all readings after a change. Viewers who wait for a reading still get its result.
func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = map[string]*reading{}
}
