package outboxtest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// eachOutage runs a check for each function of Target.Away, with a new Target each time.
func (s Suite) eachOutage(t testing.TB, check func(a *arrivals, way string)) {
	for _, way := range slices.Sorted(maps.Keys(s.open(t).Away)) {
		t.Logf("the destination is unavailable: %s", way)
		check(s.open(t), way)
	}
}

func outageCountsNothing(t testing.TB, s Suite) {
	s.eachOutage(t, func(a *arrivals, way string) {
		first, sent := a.message("a"), a.messages("a", "b", "")
		a.publish(first)
		a.await(first)
		back := a.Away[way]()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := a.call(ctx, sent...)
			if err == nil {
				t.Errorf("%s: the destination is unavailable, but the error is nil", way)
			}
			if ids := counted(ctx, err); len(ids) > 0 {
				t.Errorf("%s: the destination is unavailable, but the error counts against %d messages: %v", way, len(ids), err)
			}
			cancel()
		}
		if back == nil {
			return
		}
		back()
		a.retry(way, sent)
		a.await(sent...)
		for _, m := range sent {
			a.same(m)
		}
	})
}

// retry publishes messages until there is no error. It is called when the destination is available
// again, so the Publisher must recover.
func (a *arrivals) retry(way string, messages []outbox.Message) {
	a.t.Helper()
	for end := time.Now().Add(a.timeout); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Second)
		err := a.call(ctx, messages...)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			a.t.Fatalf("%s: the destination is available, but after %v the error is still: %v", way, a.timeout, err)
		}
	}
}

// relaySurvivesOutage checks that messages of a relay survive an outage. The relay dead-letters a
// message after the first counted attempt, so a counted attempt shows as a dead letter.
func relaySurvivesOutage(t testing.TB, s Suite) {
	s.eachOutage(t, func(a *arrivals, way string) {
		back := a.Away[way]()
		if back == nil {
			return
		}
		o, seen := a.database(s.Pool(t)), calls{make(chan struct{}, 100)}
		stop := o.relay(a.Publisher, outbox.RelayConfig{MaxAttempts: 1, PublishTimeout: 2 * time.Second, Observer: seen})
		defer stop()
		sent := a.messages("a", "b", "", "a", "c", "")
		o.add(sent...)
		for range 2 {
			select {
			case <-seen.failed:
			case <-time.After(a.timeout):
				t.Fatalf("%s: the destination is unavailable, but no call fails", way)
			}
		}
		back()
		o.awaitEmpty()
		if letters := o.dead(); len(letters) > 0 {
			t.Errorf("%s: the outage has dead-lettered %d messages, one with the reason: %s", way, len(letters), letters[0].Reason)
			return
		}
		a.await(sent...)
	})
}

// endsWithContext cancels the context before a call and during a call.
func endsWithContext(t testing.TB, s Suite) {
	a := s.open(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	a.returns(cancelled, "the context has ended before the call")
	s.eachOutage(t, func(a *arrivals, way string) {
		a.publish(a.message(""))
		a.Away[way]()
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(20*time.Millisecond, cancel).Stop()
		if err := a.returns(ctx, way); err == nil {
			t.Errorf("%s: the destination is unavailable, but the error is nil", way)
		}
	})
}

// returns calls the Publisher, and fails the test unless the call returns after its context has
// ended.
func (a *arrivals) returns(ctx context.Context, way string) error {
	a.t.Helper()
	done := make(chan error, 1)
	go func() { done <- a.call(ctx, a.messages("a", "b", "")...) }()
	select {
	case err := <-done:
		if ids := counted(ctx, err); len(ids) > 0 {
			a.t.Errorf("%s: the context of the call has ended, but the error counts against %d messages: %v", way, len(ids), err)
		}
		return err
	case <-time.After(a.timeout):
		a.t.Fatalf("%s: the context of the call has ended, but Publish does not return", way)
		return nil
	}
}
