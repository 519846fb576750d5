package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// withBad has a message that is bad in front of others, each with a key of its own.
func withBad(others int) []outbox.Message {
	messages := []outbox.Message{message("bad", "bad")}
	for i := range others {
		messages = append(messages, message(fmt.Sprint(i), fmt.Sprint(i)))
	}
	return messages
}

// The Publisher does not say which message it is about.
func TestMessageThatFailsWithoutBeingNamedIsFoundAndTheOthersLeave(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context) error{
		"an error":                  func(context.Context) error { return errors.New("no") },
		"a deadline of its own":     func(context.Context) error { return context.DeadlineExceeded },
		"the deadline of the call":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"a message that is unknown": func(context.Context) error { return &outbox.PublishError{Failed: map[string]error{"?": errRefused}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			b := &broker{}
			publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
				for _, m := range messages {
					if m.Type == "bad" {
						return fail(ctx)
					}
				}
				return b.Publish(ctx, messages)
			})
			config, dead := swift(), make(chan outbox.DeadLetter, 10)
			config.MaxAttempts, config.PublishTimeout = 3, 100*time.Millisecond
			config.OnDead = func(d outbox.DeadLetter) { dead <- d }
			o.add(withBad(50)...)
			o.relay(publisher, config)
			eventually(t, "the others to leave", func() bool { return b.number() == 50 })
			o.addUntilDead(1)
			if d := await(t, "the dead letter", dead); d.Type != "bad" || d.Attempts != 3 || len(dead) > 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// It waits alone, so nothing tells a broker that is away from one that does not take it.
func TestMessageThatWasFoundCountsNothingWhileNoCallSucceeds(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{}
	var away atomic.Bool
	calls := make(chan struct{}, 1000)
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		if away.Load() {
			calls <- struct{}{}
			return errors.New("the broker is away")
		}
		return b.unless("bad")(ctx, messages)
	})
	config := swift()
	config.MaxAttempts = 1000
	o.add(withBad(50)...)
	o.relay(publisher, config)
	attempts := func() int { return o.count(`select coalesce(max(attempts), 0) from idem.outbox`) }
	for i := 0; attempts() < 3; i++ {
		o.add(message(fmt.Sprint("more ", i), "more"))
	}
	eventually(t, "the others to leave", func() bool { return o.waiting() == 1 })
	away.Store(true)
	await(t, "a call", calls)
	await(t, "another call", calls)
	before := attempts() // with the last failure before
	for range 10 {
		await(t, "a call", calls)
	}
	if after := attempts(); after > before+1 {
		t.Errorf("%d attempts are counted, %d before the broker went away", after, before)
	}
}

// By the search, when it is found, and afterwards, when it fails alone.
func TestObserverIsToldOfEachAttemptOfAMessageThatIsNotNamed(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{}
	config, observer, dead := swift(), &seen{some: make(chan struct{})}, make(chan outbox.DeadLetter, 1)
	config.MaxAttempts, config.Observer, config.OnDead = 4, observer, func(d outbox.DeadLetter) { dead <- d }
	o.add(withBad(5)...)
	_, stop := o.relay(b.unless("bad"), config)
	o.addUntilDead(1)
	stop()
	counted := await(t, "the dead letter", dead).Attempts
	observer.mu.Lock()
	defer observer.mu.Unlock()
	for i := range observer.all {
		counted -= observer.all[i].Failed
	}
	if counted != 0 {
		t.Errorf("%d attempts more are counted than the observer was told of", counted)
	}
}

// addUntilDead adds messages that can be published, one at a time, until so many others are dead: those that are left to themselves before they
// were tried look like a broker that is away. It returns how many it has added, all of which have left.
func (o *office) addUntilDead(dead int) (added int) {
	o.t.Helper()
	eventually(o.t, fmt.Sprint(dead, " dead letters"), func() bool {
		if o.count(`select count(*) from idem.dead_letters`) == dead {
			return true
		}
		if o.waiting() < 1000 {
			o.add(message(fmt.Sprint("more ", added), fmt.Sprint("more ", added)))
			added++
		}
		return false
	})
	o.empty()
	return added
}

// A client of HTTP has a timeout of its own. The call's context is not over.
func TestMessageThatIsNamedWithATimeoutOfThePublishersOwnIsToBlame(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{refuse: func(m *outbox.Message) error {
		if m.Type == "bad" {
			return fmt.Errorf("post: %w", context.DeadlineExceeded)
		}
		return nil
	}}
	config := swift()
	config.MaxAttempts = 2
	o.add(withBad(5)...)
	o.relay(b, config)
	o.empty()
	if n := o.count(`select count(*) from idem.dead_letters where attempts = 2 and reason like 'post:%'`); n != 1 || b.number() != 5 {
		t.Errorf("%d dead letters, %d messages were published", n, b.number())
	}
}

type secretive struct{ payload string }

// What a program panics with may be what the message says.
func TestPanicIsRecordedByItsTypeAndNotByWhatItSays(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		panic(secretive{string(messages[0].Payload)})
	})
	config := swift()
	config.MaxAttempts = 1
	o.add(message("a", "top secret"))
	o.relay(publisher, config)
	o.empty()
	if reason := o.text(`select reason from idem.dead_letters where class = 'panic'`); strings.Contains(reason, "secret}") || strings.Contains(reason, "top secret") ||
		!strings.Contains(reason, "outbox_test.secretive") {
		t.Errorf("the reason is %s", reason)
	}
}

// Whatever else of the user's code is called.
func TestCallbackThatPanicsDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{refuse: func(m *outbox.Message) error {
		if m.Type == "bad" {
			return errRefused
		}
		return nil
	}}
	config := swift()
	config.MaxAttempts = 1
	config.OnDead = func(outbox.DeadLetter) { panic("OnDead") }
	config.Observer = panicking{}
	config.Sealer = panicking{}
	o.add(withBad(5)...)
	_, stop := o.relay(b, config)
	eventually(t, "the others to leave", func() bool { return b.number() == 5 })
	eventually(t, "it to be held back unsealed", func() bool { return o.count(`select count(*) from idem.outbox where held and attempts > 1`) == 1 })
	stop()
	config.Sealer = nil
	o.relay(b, config)
	o.empty()
	if n := o.count(`select count(*) from idem.dead_letters`); n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

type panicking struct{}

func (panicking) TracePublished(context.Context, outbox.TracePublishedData) { panic("TracePublished") }
func (panicking) Seal([]byte, []byte) (string, []byte, error)               { panic("Seal") }
func (panicking) Open(string, []byte, []byte) ([]byte, error)               { panic("Open") }

// A stop that does not wait for the end of a call is no fault of the message that it was about, also if that has failed before.
func TestStopInTheMidstOfACallCountsNoAttempt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	b := &broker{}
	var hang atomic.Bool
	entered := make(chan struct{}, 1000)
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		for _, m := range messages {
			if m.Type == "bad" && hang.Load() {
				entered <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			} else if m.Type == "bad" {
				return errors.New("no")
			}
		}
		return b.Publish(ctx, messages)
	})
	config := swift()
	config.MaxAttempts, config.Drain = 1000, time.Millisecond
	o.add(withBad(50)...)
	_, stop := o.relay(publisher, config)
	attempts := func() int { return o.count(`select coalesce(max(attempts), 0) from idem.outbox`) }
	for i := 0; attempts() < 2; i++ {
		o.add(message(fmt.Sprint("more ", i), "more"))
	}
	eventually(t, "the others to leave", func() bool { return o.waiting() == 1 })
	hang.Store(true)
	await(t, "a call", entered)
	before := attempts()
	stop()
	if after := attempts(); after != before {
		t.Errorf("%d attempts are counted, %d before the stop", after, before)
	}
}
