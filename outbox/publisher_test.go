package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// withBad returns a message of the type "bad", followed by others, each with a key of its own.
func withBad(others int) []outbox.Message {
	messages := []outbox.Message{message("bad", "bad")}
	for i := range others {
		messages = append(messages, message(fmt.Sprint(i), fmt.Sprint(i)))
	}
	return messages
}

// The Publisher does not name the failing message. The others are published.
func TestUnnamedError_CountsAgainstTheFailingMessage(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context) error{
		"an error":                  func(context.Context) error { return errors.New("no") },
		"a deadline of its own":     func(context.Context) error { return context.DeadlineExceeded },
		"the deadline of the call":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"a message that is unknown": func(context.Context) error { return &outbox.PublishError{Failed: map[string]error{"?": errRefused}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
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
			eventually(t, "the others to be published", func() bool { return b.number() == 50 })
			o.addUntilDead(1)
			if d := await(t, "the dead letter", dead); d.Type != "bad" || d.Attempts != 3 || len(dead) > 0 {
				t.Errorf("%+v", d)
			}
		})
	}
}

// The failing message is alone in the outbox, so the relay cannot tell its failure from an outage.
func TestUnnamedError_CountsNothingWithoutASuccess(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
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
	eventually(t, "the others to be published", func() bool { return o.waiting() == 1 })
	away.Store(true)
	await(t, "a call", calls)
	await(t, "another call", calls)
	before := attempts() // including the last failure before the outage
	for range 10 {
		await(t, "a call", calls)
	}
	if after := attempts(); after > before+1 {
		t.Errorf("%d attempts are counted, %d before the broker went away", after, before)
	}
}

func TestObserver_SeesEachUnnamedAttempt(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
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
		t.Errorf("the observer has not seen %d counted attempts", counted)
	}
}

// addUntilDead adds messages that can be published, one at a time, until there is a number of dead
// letters. Failing messages alone would look like an outage. It returns when all added messages are
// published.
func (o *database) addUntilDead(dead int) (added int) {
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

// The timeout is one of the Publisher, such as that of an HTTP client. The context of the call has
// not ended.
func TestPublishError_OwnTimeoutCounts(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
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

// The message of the interrupted call has failed before.
func TestRelay_StopCountsNoAttempt(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
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
	eventually(t, "the others to be published", func() bool { return o.waiting() == 1 })
	hang.Store(true)
	await(t, "a call", entered)
	before := attempts()
	stop()
	if after := attempts(); after != before {
		t.Errorf("%d attempts are counted, %d before the stop", after, before)
	}
}

// No call succeeds at first, so the destination counts as unavailable. The backoff grows, and no
// message is lost.
func TestUnnamedError_InAnOutageCountsNothing(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"plain": errors.New("the broker is away"), "that names none": &outbox.PublishError{},
		"of a context": context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			var times []time.Time
			b := &broker{before: func([]outbox.Message) error {
				if times = append(times, time.Now()); len(times) <= 8 {
					return err
				}
				return nil
			}}
			config := swift()
			config.MaxAttempts, config.MinPause = 1, 5*time.Millisecond
			o.add(message("a", "1"), message("a", "2"), message("b", "3"), message("", "4"))
			o.relay(b, config)
			o.empty()
			if n := o.count(`select count(*) from idem.dead_letters`); n != 0 || b.number() != 4 {
				t.Errorf("%d dead letters, %d messages were published", n, b.number())
			}
			b.wantTypes(t, []string{"1", "2"}, "a")
			pauses := 0
			for i := 1; i < 8; i++ {
				if times[i].Sub(times[i-1]) >= config.MinPause {
					pauses++
				}
			}
			if pauses < 2 { // a few single calls come before each pause
				t.Errorf("%d pauses of %v", pauses, config.MinPause)
			}
		})
	}
}

// An ID that is not in the call may stand for any message, so all messages are published again.
func TestPublishError_WithUnknownIDs(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	asked := 0
	b := &broker{}
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		if asked++; asked == 1 {
			return &outbox.PublishError{Failed: map[string]error{strings.ToUpper(messages[0].ID) + "?": errRefused}}
		}
		return b.Publish(ctx, messages)
	})
	config := swift()
	config.MaxAttempts = 1
	o.add(message("a", "1"), message("b", "2"))
	o.relay(publisher, config)
	o.empty()
	if n := o.count(`select count(*) from idem.dead_letters`); n != 0 || b.number() != 2 {
		t.Errorf("%d dead letters, %d messages were published", n, b.number())
	}
}

// The other messages are published.
func TestUnnamedError_PanicFailsOneMessage(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{before: func(messages []outbox.Message) error {
		for _, m := range messages {
			if m.Type == "poison" {
				panic("a bug")
			}
		}
		return nil
	}}
	config := swift()
	config.MaxAttempts = 2
	dead := make(chan outbox.DeadLetter, 10)
	config.OnDead = func(d outbox.DeadLetter) { dead <- d }
	for i := range 20 {
		o.add(message(fmt.Sprint(i), fmt.Sprint(i)))
	}
	o.add(message("a", "poison"), message("a", "behind"))
	o.relay(b, config)
	o.empty()
	if d := await(t, "the dead letter", dead); d.Type != "poison" || d.Class != "panic" || d.Attempts != 2 || len(dead) > 0 {
		t.Errorf("%+v", d)
	}
	if b.number() != 21 {
		t.Errorf("%d messages were published", b.number())
	}
}

// The context of a call ends before the Publisher has sent all messages. The next calls are
// smaller.
func TestRelay_ReducesTheBatchOfASlowPublisher(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		if len(messages) > 3 {
			<-ctx.Done()
			return ctx.Err()
		}
		return b.Publish(ctx, messages)
	})
	config := swift()
	config.PublishTimeout, config.BatchSize = 10*time.Millisecond, 24
	for i := range 24 {
		o.add(message(fmt.Sprint(i), fmt.Sprint(i)))
	}
	o.relay(publisher, config)
	o.empty()
	if b.number() != 24 {
		t.Errorf("%d messages were published", b.number())
	}
}

// A message that is named because the context of the call has ended counts no attempt.
func TestPublishError_EndOfTheContextCountsNothing(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	calls := 0
	b := &broker{}
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		if calls++; calls > 2 {
			return b.Publish(ctx, messages)
		}
		<-ctx.Done()
		failed := map[string]error{}
		for _, m := range messages[1:] {
			failed[m.ID] = fmt.Errorf("publish: %w", ctx.Err())
		}
		_ = b.Publish(ctx, messages[:1])
		if len(failed) == 0 {
			return nil
		}
		return &outbox.PublishError{Failed: failed}
	})
	config := swift()
	config.MaxAttempts, config.PublishTimeout = 1, 10*time.Millisecond
	o.add(message("a", "1"), message("b", "2"), message("c", "3"))
	o.relay(publisher, config)
	o.empty()
	if n := o.count(`select count(*) from idem.dead_letters`); n != 0 || b.number() != 3 {
		t.Errorf("%d dead letters, %d messages were published", n, b.number())
	}
}

// A Publisher with two brokers joins their errors, and a circuit breaker wraps the error of its
// Publisher. A message that such an error does not name may not have been published.
func TestPublishError_JoinedWithAnotherError(t *testing.T) {
	t.Parallel()
	named := func(messages []outbox.Message, kind string) error {
		failed := map[string]error{}
		for _, m := range messages {
			if m.Type == kind {
				failed[m.ID] = errRefused
			}
		}
		return &outbox.PublishError{Failed: failed}
	}
	other := errors.New("the other broker is away")
	for name, say := range map[string]func([]outbox.Message) error{
		"two that name":     func(ms []outbox.Message) error { return errors.Join(named(ms, "one"), named(ms, "two")) },
		"one that does not": func(ms []outbox.Message) error { return errors.Join(named(ms, "one"), other) },
		"it comes first":    func(ms []outbox.Message) error { return errors.Join(other, named(ms, "one")) },
		"it is away":        func(ms []outbox.Message) error { return errors.Join(named(ms, "one"), outbox.RetryLater(other, 0)) },
		"all is away":       func(ms []outbox.Message) error { return outbox.RetryLater(named(ms, "one"), 0) },
		"deep inside": func(ms []outbox.Message) error {
			return errors.Join(errors.Join(named(ms, "one")), errors.Join(nil, outbox.RetryLater(named(ms, "two"), 0)))
		},
	} {
		for form, wrap := range map[string]func(outbox.Publisher) outbox.Publisher{
			"a Publisher": func(p outbox.Publisher) outbox.Publisher { return p },
			"a route of several": func(p outbox.Publisher) outbox.Publisher {
				route := outbox.Route(map[string]outbox.Publisher{"orders": p, "none": p})
				return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
					err := route.Publish(ctx, append(slices.Clip(messages), outbox.Message{ID: "none", Topic: "none"}))
					if part, ok := errors.AsType[*outbox.PublishError](err); ok {
						delete(part.Failed, "none")
					}
					return err
				})
			},
		} {
			t.Run(name+", "+form, func(t *testing.T) {
				t.Parallel()
				o := newDatabase(t)
				b := &broker{}
				var fails atomic.Bool
				fails.Store(true)
				said := make(chan struct{}, 1)
				publisher := wrap(outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
					if messages[0].Topic == "none" {
						return nil
					}
					if len(messages) == 3 && fails.CompareAndSwap(true, false) {
						said <- struct{}{}
						return say(messages)
					}
					return b.Publish(ctx, messages)
				}))
				o.add(message("1", "one"), message("2", "two"), message("3", "three"))
				o.relay(publisher, swift())
				await(t, "the call of all three", said)
				o.empty()
				got := b.types()
				slices.Sort(got)
				want := []string{"one", "three", "two"}
				if name == "two that name" { // the broker has accepted the third message
					want = []string{"one", "two"}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q were published, want %q", got, want)
				}
			})
		}
	}
}
