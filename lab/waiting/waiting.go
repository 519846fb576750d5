// Package waiting is how tests wait for what has to come: for minutes, as a machine that others keep busy is slow, and for no longer.
package waiting

import (
	"context"
	"testing"
	"time"
)

// Limit is for whatever has to happen.
const Limit = 5 * time.Minute

// For returns once the channel is closed or has a value.
func For[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Limit):
		t.Fatalf("waited in vain for: %s", what)
		panic("unreachable")
	}
}

// Until asks until the answer is yes, for what announces itself to no channel.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Limit); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// Within is a context that ends with the cleanups of a test, or when its time is over.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Escape runs f in a goroutine of its own and tells how it ended: what it panicked with, and whether it returned.
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
