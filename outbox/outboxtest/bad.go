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

// bad returns a message of a key that cannot be published, in each way that there is.
func (a *arrivals) bad(key string) map[string]outbox.Message {
	all := map[string]outbox.Message{}
	for way, spoil := range a.Bad {
		m := a.message(key)
		spoil(&m)
		all[way] = m
	}
	return all
}

func namedAlone(t testing.TB, s Suite) {
	a := s.open(t)
	for way, bad := range a.bad("bad") {
		good := a.messages("a", "b", "c", "", "e")
		call := slices.Insert(slices.Clone(good), 2, bad)
		ctx, cancel := context.WithTimeout(t.Context(), a.patience)
		err := a.call(ctx, call...)
		switch {
		case err == nil:
			t.Errorf("%s: the message cannot be published, and the error is nil", way)
		case isNamed(err):
			if diff := cmp.Diff([]string{bad.ID}, blamed(ctx, err)); diff != "" {
				t.Errorf("%s: messages that the error blames (-want +got):\n%s\n%v", way, diff, err)
			}
		default: // it does not know, and the relay finds out
			for _, m := range good {
				if err := a.call(ctx, m); err != nil {
					t.Errorf("%s: a message that can be published was not, alone and behind it: %v", way, err)
				}
			}
		}
		if err := a.call(ctx, bad); err == nil {
			t.Errorf("%s: the message cannot be published, alone, and the error is nil", way)
		}
		cancel()
		a.await(good...)
		a.settle()
		a.times(0, bad)
	}
}

func deadAlone(t testing.TB, s Suite) {
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
	o := a.office(s.Pool(t))
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

// nothingBehind is about Publishers that are given several messages of a key in one call.
func nothingBehind(t testing.TB, s Suite) {
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
			continue // it is of another key
		}
		before, behind, other := a.message("a"), a.message("a"), a.message("b")
		err := a.call(t.Context(), before, bad, behind, other)
		ids := []string{bad.ID, behind.ID}
		slices.Sort(ids)
		if diff := cmp.Diff(ids, blamed(t.Context(), err)); diff != "" {
			t.Fatalf("%s: messages that the error blames (-want +got):\n%s\n%v", way, diff, err)
		}
		a.await(before, other)
		a.settle()
		a.times(0, bad, behind)
	}
}
