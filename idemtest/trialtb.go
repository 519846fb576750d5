package idemtest

import (
	"context"
	"testing"
)

// trialTB is the testing.TB that a suite passes to New. Its cleanups run, and its context ends, at
// the end of one trial and not at the end of the whole test. A suite runs hundreds of trials.
// Without these early cleanups, their databases would pile up on the server.
type trialTB struct {
	testing.TB
	maxConns int32 // pool size that Pool uses; 0 means the default
	ctx      context.Context
	cleanups []func()
}

// Cleanup implements testing.TB.
func (s *trialTB) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Context implements testing.TB.
func (s *trialTB) Context() context.Context { return s.ctx }

// runTrial calls f with a new trialTB, and then runs the cleanups that f has registered.
func runTrial(t testing.TB, maxConns int32, f func(s *trialTB)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &trialTB{TB: t, maxConns: maxConns, ctx: ctx}
	defer s.end()
	defer cancel()
	f(s)
}

// end runs the cleanups in reverse order. Each call of end runs one cleanup and defers the next
// call, so the remaining cleanups run even if a cleanup panics or calls FailNow.
func (s *trialTB) end() {
	if len(s.cleanups) == 0 {
		return
	}
	last := s.cleanups[len(s.cleanups)-1]
	s.cleanups = s.cleanups[:len(s.cleanups)-1]
	defer s.end()
	last()
}
