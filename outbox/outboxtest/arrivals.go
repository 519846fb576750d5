package outboxtest

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem/outbox"
)

// arrivals are a Target and what has arrived there.
type arrivals struct {
	Target
	t        testing.TB
	patience time.Duration
	all      []outbox.Message
}

func (s Suite) open(t testing.TB) *arrivals {
	t.Helper()
	a := &arrivals{Target: s.New(t), t: t, patience: s.Patience}
	if a.patience <= 0 {
		a.patience = time.Minute
	}
	if a.MaxPayload == 0 {
		a.MaxPayload = 256 << 10
	}
	if a.Publisher == nil || a.Topic == "" || a.Arrived == nil {
		t.Fatal("outboxtest: a Target needs a Publisher, a Topic and Arrived")
	}
	return a
}

// message is one of the Topic that can be published.
func (a *arrivals) message(key string) outbox.Message {
	id := outbox.NewID()
	return outbox.Message{ID: id, Topic: a.Topic, Key: key, Type: "Said", Payload: []byte("payload of " + id)}
}

func (a *arrivals) messages(keys ...string) []outbox.Message {
	all := make([]outbox.Message, len(keys))
	for i, key := range keys {
		all[i] = a.message(key)
	}
	return all
}

// call calls the Publisher. A panic is an error that blames none: the relay finds out at which message it was.
func (a *arrivals) call(ctx context.Context, messages ...outbox.Message) error {
	return publish(ctx, a.Publisher, messages)
}

// publish publishes messages, without an error.
func (a *arrivals) publish(messages ...outbox.Message) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), a.patience)
	defer cancel()
	if err := a.call(ctx, messages...); err != nil {
		a.t.Fatalf("messages that can be published were not: %v", err)
	}
}

// await waits until each of these messages has arrived.
func (a *arrivals) await(messages ...outbox.Message) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), a.patience)
	defer cancel()
	missing := map[string]bool{}
	for _, m := range messages {
		missing[m.ID] = true
	}
	for _, m := range a.all {
		delete(missing, m.ID)
	}
	for end := time.Now().Add(a.patience); len(missing) > 0; time.Sleep(5 * time.Millisecond) {
		more, err := a.Arrived(ctx)
		a.all = append(a.all, more...)
		for _, m := range more {
			delete(missing, m.ID)
		}
		if len(missing) > 0 && time.Now().After(end) {
			a.t.Fatalf("%d of %d messages have not arrived after %v, one of them is %v; the last error of Arrived: %v",
				len(missing), len(messages), a.patience, slices.Sorted(maps.Keys(missing))[0], err)
		}
	}
}

// settle waits for a message that is published behind all others, so that what has not arrived by then does not.
func (a *arrivals) settle() {
	a.t.Helper()
	last := a.message("")
	a.publish(last)
	a.await(last)
	a.all = slices.DeleteFunc(a.all, func(m outbox.Message) bool { return m.ID == last.ID })
}

// of returns what has arrived under an ID.
func (a *arrivals) of(id string) (all []outbox.Message) {
	for _, m := range a.all {
		if m.ID == id {
			all = append(all, m)
		}
	}
	return all
}

// same compares what has arrived under the ID of a message with it, each time that it has, and reports whether it is the same.
func (a *arrivals) same(want outbox.Message) bool {
	a.t.Helper()
	if a.Carried != nil {
		want.Headers = maps.Clone(want.Headers)
		a.Carried(&want)
	}
	for _, got := range a.of(want.ID) {
		if !bytes.Equal(want.Payload, got.Payload) {
			a.t.Fatalf("what has arrived is not what was published: a payload of %d bytes, beginning with %.20q, is one of %d, beginning with %.20q",
				len(want.Payload), want.Payload, len(got.Payload), got.Payload)
		}
		got.Topic, got.Payload = want.Topic, want.Payload
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(want, "Payload")); diff != "" {
			a.t.Errorf("what has arrived is not what was published (-published +arrived):\n%s", diff)
			return false
		}
	}
	return true
}

// times looks how often a message has arrived.
func (a *arrivals) times(want int, messages ...outbox.Message) {
	a.t.Helper()
	for _, m := range messages {
		if n := len(a.of(m.ID)); n != want {
			a.t.Errorf("the message %s of the key %.20q has arrived %d times, want %d", m.ID, m.Key, n, want)
		}
	}
}

// strangers looks for what has arrived and was not published.
func (a *arrivals) strangers(published ...outbox.Message) {
	a.t.Helper()
	known := map[string]bool{}
	for _, m := range published {
		known[m.ID] = true
	}
	for _, m := range a.all {
		if !known[m.ID] {
			a.t.Errorf("a message has arrived that was not published, under the ID %q", m.ID)
		}
	}
}
