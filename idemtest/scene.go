package idemtest

import (
	"context"
	"testing"
)

// scene is the testing.TB that a suite passes to New. It covers one trial: its cleanups run, and
// its context ends, when the trial is over, not when the whole test is.
type scene struct {
	testing.TB
	maxConns int32 // pool size that Pool uses; 0 means the default
	ctx      context.Context
	cleanups []func()
}

// Cleanup implements testing.TB.
func (s *scene) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Context implements testing.TB.
func (s *scene) Context() context.Context { return s.ctx }

// play runs f with a new scene and then runs the cleanups of that scene.
func play(t testing.TB, maxConns int32, f func(s *scene)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &scene{TB: t, maxConns: maxConns, ctx: ctx}
	defer s.end()
	defer cancel()
	f(s)
}

// end runs the cleanups in reverse order. The recursion through defer keeps them running when one
// of them panics or ends the test with FailNow.
func (s *scene) end() {
	if len(s.cleanups) == 0 {
		return
	}
	last := s.cleanups[len(s.cleanups)-1]
	s.cleanups = s.cleanups[:len(s.cleanups)-1]
	defer s.end()
	last()
}
