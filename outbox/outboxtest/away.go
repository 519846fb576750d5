package outboxtest

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// eachAway checks each way in which a destination can be away, with a Target of its own.
func (s Suite) eachAway(t testing.TB, check func(a *arrivals, way string)) {
	for _, way := range slices.Sorted(maps.Keys(s.open(t).Away)) {
		t.Logf("the destination is away: %s", way)
		check(s.open(t), way)
	}
}

func awayBlamesNone(t testing.TB, s Suite) {
	s.eachAway(t, func(a *arrivals, way string) {
		first, sent := a.message("a"), a.messages("a", "b", "")
		a.publish(first)
		a.await(first)
		back := a.Away[way]()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := a.call(ctx, sent...)
			if err == nil {
				t.Errorf("%s: the destination is away, and the error is nil", way)
			}
			if ids := blamed(ctx, err); len(ids) > 0 {
				t.Errorf("%s: the destination is away, and the error blames %d messages: %v", way, len(ids), err)
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

// retry publishes until there is no error, which is to come by itself when the destination is back.
func (a *arrivals) retry(way string, messages []outbox.Message) {
	a.t.Helper()
	for end := time.Now().Add(a.patience); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Second)
		err := a.call(ctx, messages...)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			a.t.Fatalf("%s: the destination is back, and after %v the error is still: %v", way, a.patience, err)
		}
	}
}

// outlivesAway is the same in the hands of a relay that lets a message die of its first attempt.
func outlivesAway(t testing.TB, s Suite) {
	s.eachAway(t, func(a *arrivals, way string) {
		back := a.Away[way]()
		if back == nil {
			return
		}
		o, seen := a.office(s.Pool(t)), calls{make(chan struct{}, 100)}
		stop := o.relay(a.Publisher, outbox.RelayConfig{MaxAttempts: 1, PublishTimeout: 2 * time.Second, Observer: seen})
		defer stop()
		sent := a.messages("a", "b", "", "a", "c", "")
		o.add(sent...)
		for range 2 {
			select {
			case <-seen.failed:
			case <-time.After(a.patience):
				t.Fatalf("%s: the destination is away, and no call fails", way)
			}
		}
		back()
		o.awaitEmpty()
		if letters := o.dead(); len(letters) > 0 {
			t.Errorf("%s: %d messages have died of a destination that was away, one because of: %s", way, len(letters), letters[0].Reason)
			return
		}
		a.await(sent...)
	})
}

// endsWithContext cancels before a call and during one.
func endsWithContext(t testing.TB, s Suite) {
	a := s.open(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	a.returns(cancelled, "in a context that has ended")
	s.eachAway(t, func(a *arrivals, way string) {
		a.publish(a.message(""))
		a.Away[way]()
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(20*time.Millisecond, cancel).Stop()
		if err := a.returns(ctx, way); err == nil {
			t.Errorf("%s: the destination is away, and the error is nil", way)
		}
	})
}

// returns calls the Publisher, which returns when the context ends.
func (a *arrivals) returns(ctx context.Context, way string) error {
	a.t.Helper()
	done := make(chan error, 1)
	go func() { done <- a.call(ctx, a.messages("a", "b", "")...) }()
	select {
	case err := <-done:
		if ids := blamed(ctx, err); len(ids) > 0 {
			a.t.Errorf("%s: the context of a call has ended, and the error blames %d messages: %v", way, len(ids), err)
		}
		return err
	case <-time.After(a.patience):
		a.t.Fatalf("%s: the context of a call has ended, and it goes on", way)
		return nil
	}
}
