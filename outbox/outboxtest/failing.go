package outboxtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
)

// bad returns one message with the given key for each function of Target.Bad.
func (a *arrivals) bad(key string) map[string]outbox.Message {
	all := map[string]outbox.Message{}
	for way, spoil := range a.Bad {
		m := a.message(key)
		spoil(&m)
		all[way] = m
	}
	return all
}

func namesFailing(t testing.TB, s Suite) {
	a := s.open(t)
	for way, bad := range a.bad("bad") {
		good := a.messages("a", "b", "c", "", "e")
		call := slices.Insert(slices.Clone(good), 2, bad)
		ctx, cancel := context.WithTimeout(t.Context(), a.timeout)
		err := a.call(ctx, call...)
		switch {
		case err == nil:
			t.Errorf("%s: the message cannot be published, but the error is nil", way)
		case isNamed(err):
			if diff := cmp.Diff([]string{bad.ID}, counted(ctx, err)); diff != "" {
				t.Errorf("%s: messages that the error names (-want +got):\n%s\n%v", way, diff, err)
			}
		default: // the error names no message, so the outcome of the valid messages is unknown
			for _, m := range good {
				if err := a.call(ctx, m); err != nil {
					t.Errorf("%s: a valid message was not published in a later call: %v", way, err)
				}
			}
		}
		if err := a.call(ctx, bad); err == nil {
			t.Errorf("%s: the message cannot be published alone, but the error is nil", way)
		}
		cancel()
		a.await(good...)
		a.settle()
		a.times(0, bad)
	}
}

func deadLettersFailing(t testing.TB, s Suite) {
	a := s.open(t)
	if len(a.Bad) == 0 {
		return
	}
	var good, bad []outbox.Message
	for i := range 20 {
		good = append(good, a.message(fmt.Sprint(i%7)))
	}
	for _, m := range a.bad("bad") {
		bad = append(bad, m)
	}
	for _, m := range a.bad("") {
		bad = append(bad, m)
	}
	o := a.database(s.Pool(t))
	o.add(append(slices.Clone(bad), good...)...)
	stop := o.relay(a.Publisher, outbox.RelayConfig{MaxAttempts: 2})
	defer stop()
	o.awaitEmpty()
	want := map[string]bool{}
	for _, m := range bad {
		want[m.ID] = true
	}
	dead := map[string]bool{}
	for _, letter := range o.dead() {
		dead[letter.ID] = true
		if letter.Reason == "" {
			t.Errorf("the dead letter %s gives no reason", letter.ID)
		}
	}
	if diff := cmp.Diff(want, dead); diff != "" {
		t.Fatalf("dead letters (-want +got):\n%s", diff)
	}
	a.await(good...)
	a.settle()
	a.times(0, bad...)
}

// holdsAfterFailure checks that an OrderKeeper publishes no message of a key after a failed one.
func holdsAfterFailure(t testing.TB, s Suite) {
	a := s.open(t)
	if keeper, ok := a.Publisher.(outbox.OrderKeeper); !ok || !keeper.KeepsOrder() {
		return
	}
	sound := a.messages(slices.Repeat([]string{"a"}, 20)...)
	a.publish(sound...)
	a.await(sound...)
	a.firstInOrder(sound)
	for _, way := range slices.Sorted(maps.Keys(a.Bad)) {
		bad := a.message("a")
		if a.Bad[way](&bad); bad.Topic != a.Topic || bad.Key != "a" {
			continue // the function has changed the topic or the key, so the order does not matter
		}
		before, behind, other := a.message("a"), a.message("a"), a.message("b")
		err := a.call(t.Context(), before, bad, behind, other)
		ids := []string{bad.ID, behind.ID}
		slices.Sort(ids)
		if diff := cmp.Diff(ids, counted(t.Context(), err)); diff != "" {
			t.Fatalf("%s: messages that the error names (-want +got):\n%s\n%v", way, diff, err)
		}
		a.await(before, other)
		a.settle()
		a.times(0, bad, behind)
	}
}
