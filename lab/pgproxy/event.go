package pgproxy

import (
	"fmt"
	"sync"
)

// Stage is how far a statement has come.
type Stage int

const (
	Seen      Stage = iota + 1 // the client's message has arrived at the proxy
	Forwarded                  // it has been sent on to the server
	Answered                   // the server's completion of the statement, or its error, has arrived at the proxy
	Delivered                  // it has been sent on to the client
)

func (s Stage) String() string {
	switch s {
	case Seen:
		return "seen"
	case Forwarded:
		return "forwarded"
	case Answered:
		return "answered"
	case Delivered:
		return "delivered"
	}
	return fmt.Sprintf("Stage(%d)", int(s))
}

// Event says that a statement has reached a stage.
type Event struct {
	Stage Stage
	Statement
	Tag  string // from Answered on: the command tag, "INSERT 0 1"; empty for an error and for an empty statement
	Code string // from Answered on: the SQLSTATE if the answer is an error
}

// Observe calls watch for every event until stop is called. It is called in the middle of the traffic: while it has not
// returned, the stream that the event is about stands still. It must be safe for concurrent use. The stages of a
// statement are reported by several goroutines: Forwarded may be reported a little after Answered.
func (p *Proxy) Observe(watch func(Event)) (stop func()) {
	w := &watcher{watch}
	p.watchers.add(w)
	return func() { p.watchers.remove(w) }
}

// Next returns a channel that receives the event of the next statement chosen by match that reaches the stage. Ask
// before you start what is to be awaited.
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
