package promises_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem"
)

// watch is an observer that a test can wait on.
type watch struct {
	mu     sync.Mutex
	seen   []string // events and outcomes, in order
	change chan struct{}
}

func newWatch() *watch { return &watch{change: make(chan struct{})} }

func (w *watch) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

func (w *watch) TraceEvent(_ context.Context, data idem.TraceEventData) {
	if !isStage(data.Event) {
		w.add(string(data.Event))
	}
}

// isStage reports whether an event occurs in every call that executes.
func isStage(event idem.Event) bool {
	return event == idem.EventExecuting || event == idem.EventRecording
}

func (w *watch) TraceEnd(_ context.Context, data idem.TraceEndData) { w.add(string(data.Outcome)) }

func (w *watch) add(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, what)
	close(w.change)
	w.change = make(chan struct{})
}

func (w *watch) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *watch) count(what string) int {
	n := 0
	for _, s := range w.all() {
		if s == what {
			n++
		}
	}
	return n
}

// await waits until what was seen n times.
func (w *watch) await(t testing.TB, what string, n int) {
	t.Helper()
	deadline := time.After(limit)
	for {
		w.mu.Lock()
		change := w.change
		w.mu.Unlock()
		if w.count(what) >= n {
			return
		}
		select {
		case <-change:
		case <-deadline:
			t.Fatalf("saw %q %d times, want %d", what, w.count(what), n)
		}
	}
}
