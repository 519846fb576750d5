package outboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/idem-go/idem/outbox"
)

// arrivals collects the messages that arrive at a Target.
type arrivals struct {
	Target
	t       testing.TB
	timeout time.Duration
	all     []outbox.Message
}

func (s Suite) open(t testing.TB) *arrivals {
	t.Helper()
	a := &arrivals{Target: s.New(t), t: t, timeout: s.Patience}
	if a.timeout <= 0 {
		a.timeout = time.Minute
	}
	if a.MaxPayload == 0 {
		a.MaxPayload = 256 << 10
	}
	if a.Publisher == nil || a.Topic == "" || a.Arrived == nil {
		t.Fatal("outboxtest: a Target needs a Publisher, a Topic and Arrived")
	}
	return a
}

// message returns a valid message with the Topic of the Target.
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

// call calls the Publisher. If the Publisher panics, call returns an error that names no message,
// as the relay does.
func (a *arrivals) call(ctx context.Context, messages ...outbox.Message) error {
	return publish(ctx, a.Publisher, messages)
}

// publish publishes messages. It fails the test if the Publisher returns an error.
func (a *arrivals) publish(messages ...outbox.Message) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), a.timeout)
	defer cancel()
	if err := a.call(ctx, messages...); err != nil {
		a.t.Fatalf("valid messages were not published: %v", err)
	}
}

// await waits until each of these messages has arrived.
func (a *arrivals) await(messages ...outbox.Message) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), a.timeout)
	defer cancel()
	missing := map[string]bool{}
	for _, m := range messages {
		missing[m.ID] = true
	}
	for _, m := range a.all {
		delete(missing, m.ID)
	}
	for end := time.Now().Add(a.timeout); len(missing) > 0; time.Sleep(5 * time.Millisecond) {
		more, err := a.Arrived(ctx)
		a.all = append(a.all, more...)
		for _, m := range more {
			delete(missing, m.ID)
		}
		if len(missing) > 0 && time.Now().After(end) {
			a.t.Fatalf("%d of %d messages have not arrived after %v, one of them is %v; the last error of Arrived: %v",
				len(missing), len(messages), a.timeout, slices.Sorted(maps.Keys(missing))[0], err)
		}
	}
}

// settle publishes one more message and waits until it has arrived. The suite assumes that other
// messages that have not arrived by then never arrive.
func (a *arrivals) settle() {
	a.t.Helper()
	last := a.message("")
	a.publish(last)
	a.await(last)
	a.all = slices.DeleteFunc(a.all, func(m outbox.Message) bool { return m.ID == last.ID })
}

// of returns the messages that have arrived under an ID.
func (a *arrivals) of(id string) (all []outbox.Message) {
	for _, m := range a.all {
		if m.ID == id {
			all = append(all, m)
		}
	}
	return all
}

// same compares a message with all arrivals that have its ID, and reports whether all of them equal
// the message.
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

// times checks that each of the messages has arrived this many times.
func (a *arrivals) times(want int, messages ...outbox.Message) {
	a.t.Helper()
	for _, m := range messages {
		if n := len(a.of(m.ID)); n != want {
			a.t.Errorf("the message %s of the key %.20q has arrived %d times, want %d", m.ID, m.Key, n, want)
		}
	}
}

// unexpected fails the test if a message has arrived that was not published.
func (a *arrivals) unexpected(published ...outbox.Message) {
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

// publish calls a Publisher, and returns a panic as an error.
func publish(ctx context.Context, p outbox.Publisher, messages []outbox.Message) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the Publisher has panicked: %v", value)
		}
	}()
	return p.Publish(ctx, messages)
}

// counted returns the IDs of the messages for which the error of a call counts an attempt. A reason
// that only says that the context of the call has ended counts none.
func counted(ctx context.Context, err error) []string {
	named, ok := errors.AsType[*outbox.PublishError](err)
	if !ok {
		return nil
	}
	var ids []string
	for id, reason := range named.Failed {
		_, later := outbox.RetryAfter(reason)
		ended := ctx.Err() != nil && (errors.Is(reason, context.Canceled) || errors.Is(reason, context.DeadlineExceeded))
		if !later && !ended {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// isNamed reports whether an error is a PublishError, which names messages.
func isNamed(err error) bool {
	_, ok := errors.AsType[*outbox.PublishError](err)
	return ok
}
