package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
)

// The broker is away: nothing is counted, nothing is lost, and it is asked again after pauses that grow.
func TestErrorThatNamesNoMessageBlamesNone(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"plain": errors.New("the broker is away"), "that names none": &outbox.PublishError{},
		"of a context": context.DeadlineExceeded,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
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
			if diff := cmp.Diff([]string{"1", "2"}, b.types("a")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			pauses := 0
			for i := 1; i < 8; i++ {
				if times[i].Sub(times[i-1]) >= config.MinPause {
					pauses++
				}
			}
			if pauses < 2 { // before each of which a few messages have been tried
				t.Errorf("%d pauses of %v", pauses, config.MinPause)
			}
		})
	}
}

// What a Publisher takes for the ID of a message is none of those that it was given: then it may mean any of them.
func TestMessagesAreNotTakenForPublishedByAPublisherThatNamesUnknownOnes(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
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

func TestMessageThatMakesThePublisherPanicIsFoundAndTheOthersLeave(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
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

// A call that takes too long is over with its context; what it has published by then is unknown. The next ones are smaller, so
// that it gets on.
func TestPublisherThatIsTooSlowForABatchGetsSmallerOnes(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
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

// A message that fails because the context was over is not to blame, even if it is named.
func TestMessageIsNotBlamedForTheEndOfAContext(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
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
