package idemtest

import (
	"context"
	"testing"
)

// scene is the test that New is given: one trial, with a database of its own, whose cleanups run when the trial is over.
type scene struct {
	testing.TB
	maxConns int32 // of Pool, 0 if that does not matter
	ctx      context.Context
	cleanups []func()
}

// Cleanup implements testing.TB.
func (s *scene) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Context implements testing.TB.
func (s *scene) Context() context.Context { return s.ctx }

// play runs f in a scene of its own.
func play(t testing.TB, maxConns int32, f func(s *scene)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &scene{TB: t, maxConns: maxConns, ctx: ctx}
	defer s.end()
	defer cancel()
	f(s)
}

// end runs the cleanups, the last one first, also those behind one that ends the test.
func (s *scene) end() {
	if len(s.cleanups) == 0 {
		return
	}
	last := s.cleanups[len(s.cleanups)-1]
	s.cleanups = s.cleanups[:len(s.cleanups)-1]
	defer s.end()
	last()
}
