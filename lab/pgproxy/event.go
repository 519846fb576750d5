package pgproxy

import "sync"

// Stage is the progress of a statement through the proxy.
type Stage int

const (
	Seen     Stage = iota + 1 // the client's message has arrived at the proxy
	Answered                  // the server's completion or error has arrived at the proxy
)

// Event reports that a statement has reached a stage.
type Event struct {
	Stage Stage
	Statement
	// Tag is the command tag of an answer, such as "INSERT 0 1". It is empty for an error and for
	// an empty statement.
	Tag string
	// Code is the SQLSTATE of an answer that is an error.
	Code string
}

// Observe calls watch for every event until stop is called. The proxy calls watch synchronously:
// the stream to which the event belongs is not forwarded until watch returns. watch must be safe
// for concurrent use.
func (p *Proxy) Observe(watch func(Event)) (stop func()) {
	w := &watcher{watch}
	p.watchers.add(w)
	return func() { p.watchers.remove(w) }
}

// Next returns a channel that receives one event, when the first statement for which match returns
// true reaches the stage. Call Next before you start the work that runs the statement.
func (p *Proxy) Next(stage Stage, match Match) <-chan Event {
	next := make(chan Event, 1)
	var once sync.Once
	w := &watcher{}
	w.watch = func(e Event) {
		if e.Stage == stage && match.accepts(e.Statement) {
			once.Do(func() {
				p.watchers.remove(w)
				next <- e
			})
		}
	}
	p.watchers.add(w)
	return next
}

type watcher struct{ watch func(Event) }

type watchers struct{ set[*watcher] }

func (w *watchers) report(e Event) {
	for _, each := range w.all() {
		each.watch(e)
	}
}
