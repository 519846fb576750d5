package outbox_test

import (
	"context"
	"errors"
	"fmt"
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
		"an error":                 func(context.Context) error { return errors.New("no") },
		"the deadline of the call": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
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
			var observed atomic.Int64
			config.Observer = observing(func(data outbox.TracePublishedData) { observed.Add(int64(data.Failed)) })
			config.MaxAttempts, config.PublishTimeout = 3, 100*time.Millisecond
			config.OnDead = func(d outbox.DeadLetter) { dead <- d }
			o.add(withBad(50)...)
			o.relay(publisher, config)
			eventually(t, "the others to be published", func() bool { return b.number() == 50 })
			o.addUntilDead(1)
			if d := await(t, "the dead letter", dead); d.Type != "bad" || d.Attempts != 3 || len(dead) > 0 || observed.Load() != 3 {
				t.Errorf("%+v; %d observed attempts", d, observed.Load())
			}
		})
	}
}

// addUntilDead adds messages that can be published, one at a time, until there is a number of dead
// letters. Failing messages alone would look like an outage. It returns when all added messages are
// published.
func (o *database) addUntilDead(dead int) {
	o.t.Helper()
	added := 0
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
