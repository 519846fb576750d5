// Package waiting has functions with which tests wait for an event. They fail the test only after
// minutes, because a test may run on a busy machine.
package waiting

import (
	"context"
	"testing"
	"time"
)

// Limit is how long the functions wait for an event.
const Limit = 5 * time.Minute

// For waits until the channel is closed or has a value, and returns the value.
func For[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Limit):
		t.Fatalf("timeout: %s", what)
		panic("unreachable")
	}
}

// Until polls until the condition is true.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Limit); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

// Within returns a context that ends in the cleanup of the test, or after Limit.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Escape runs f in a new goroutine. It returns the value with which f panicked, and whether f
// returned.
func Escape(t testing.TB, f func()) (recovered any, returned bool) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recovered = recover() }()
		f()
		returned = true
	}()
	For(t, "the goroutine to end", done)
	return recovered, returned
}
