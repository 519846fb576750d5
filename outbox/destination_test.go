package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
)

// to returns a message for a destination.
func to(topic, key, what string) outbox.Message {
	return outbox.Message{Topic: topic, Key: key, Type: what}
}

// divided is a Divider with a destination for each topic.
type divided struct {
	outbox.PublisherFunc
}

func (divided) Destination(topic string) string { return topic }

// Between two attempts the destination has no message in memory.
func TestDivider_CountsUnnamedAttemptsWhenIdle(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	publisher := divided{b.unless("bad")}
	config, dead := swift(), make(chan outbox.DeadLetter, 1)
	config.MaxAttempts, config.OnDead = 4, func(d outbox.DeadLetter) { dead <- d }
	o.add(withBad(50)...)
	o.relay(publisher, config)
	eventually(t, "an attempt to be counted", func() bool {
		o.add(message("more", "more"))
		return o.count(`select coalesce(max(attempts), 0) from idem.outbox`) > 0
	})
	for range 200 {
		eventually(t, "the others to be published", func() bool { return o.waiting() <= 1 })
		select {
		case d := <-dead:
			if d.Type != "bad" || d.Attempts != 4 {
				t.Errorf("%+v", d)
			}
			return
		case <-time.After(50 * time.Millisecond): // the message fails meanwhile, alone in the outbox
			o.add(message("few", "few"))
		}
	}
	t.Error("the message is not dead-lettered")
}

// The slow destination returns only when the test lets it.
func TestDivider_SlowDestinationBlocksNoOther(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	slow, answer := make(chan struct{}, 1000), make(chan struct{})
	publisher := divided{func(ctx context.Context, messages []outbox.Message) error {
		for i := range messages {
			if messages[i].Topic == "slow" {
				slow <- struct{}{}
				<-answer
			}
			if err := b.Publish(ctx, messages[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}}
	var want []string
	for i := range 150 {
		o.add(to("slow", "k", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	config := swift()
	config.BatchSize = 20
	o.relay(publisher, config)
	await(t, "a call to the slow destination", slow)
	for i := range 30 {
		o.add(to(fmt.Sprint("fast ", i), "f", fmt.Sprint(i)))
	}
	eventually(t, "the others", func() bool { return len(b.types("f")) == 30 })
	if n := o.count(`select count(*) from idem.outbox where attempts > 0`); n != 0 {
		t.Errorf("an attempt of %d messages is counted", n)
	}
	close(answer)
	o.empty()
	b.wantTypes(t, want, "k")
}

// None of them blocks another destination.
func TestDivider_HundredsOfSlowDestinations(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	slow, answer := make(chan struct{}, 1000), make(chan struct{})
	publisher := divided{func(ctx context.Context, messages []outbox.Message) error {
		if messages[0].Key == "k" {
			slow <- struct{}{}
			<-answer
		}
		return b.Publish(ctx, messages)
	}}
	for i := range 300 {
		o.add(to(fmt.Sprint("slow ", i), "k", fmt.Sprint(i)))
	}
	o.relay(publisher, swift())
	for range 60 {
		await(t, "calls to the slow destinations", slow)
	}
	o.add(to("fast", "f", "1"))
	eventually(t, "the other", func() bool { return len(b.types("f")) == 1 })
	close(answer)
	o.empty()
}

// The relay makes no second call to it.
func TestDivider_HungDestinationBlocksNoOther(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	hangs, release := make(chan struct{}, 1000), make(chan struct{})
	publisher := divided{func(ctx context.Context, messages []outbox.Message) error {
		if messages[0].Topic == "hangs" {
			hangs <- struct{}{}
			<-release
		}
		return b.Publish(ctx, messages)
	}}
	config := swift()
	config.PublishTimeout = 10 * time.Millisecond
	o.add(to("hangs", "k", "1"))
	o.relay(publisher, config)
	await(t, "the call", hangs)
	o.add(to("works", "f", "1"), to("hangs", "k", "2"))
	eventually(t, "the other", func() bool { return len(b.types("f")) == 1 })
	close(release)
	o.empty()
	b.wantTypes(t, []string{"1", "2"}, "k")
}

// It blocks no other destination.
func TestDivider_UnavailableDestinationCountsNothing(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(outbox.PublisherFunc) outbox.Publisher{
		"divided":     func(f outbox.PublisherFunc) outbox.Publisher { return divided{f} },
		"not divided": func(f outbox.PublisherFunc) outbox.Publisher { return f },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			b := &broker{}
			var mu sync.Mutex
			tries, back := 0, false
			publisher := kind(func(ctx context.Context, messages []outbox.Message) error {
				mu.Lock()
				defer mu.Unlock()
				failed := map[string]error{}
				for i := range messages {
					if tries++; messages[i].Topic == "away" && !back {
						failed[messages[i].ID] = fmt.Errorf("ask: %w", outbox.RetryLater(errors.New("503"), 0))
						continue
					}
					if err := b.Publish(ctx, messages[i:i+1]); err != nil {
						return err
					}
				}
				if len(failed) > 0 {
					return &outbox.PublishError{Failed: failed}
				}
				return nil
			})
			config := swift()
			config.MaxAttempts = 1
			for i := range 50 {
				o.add(to("away", fmt.Sprint(i%5), fmt.Sprint(i)))
			}
			o.relay(publisher, config)
			for i := range 20 {
				o.add(to("there", "f", fmt.Sprint(i)))
			}
			eventually(t, "the others", func() bool { return len(b.types("f")) == 20 })
			eventually(t, "many attempts", func() bool { mu.Lock(); defer mu.Unlock(); return tries > 100 })
			if n := o.count(`select (select count(*) from idem.dead_letters) + count(*) from idem.outbox where attempts > 0`); n != 0 {
				t.Errorf("%d messages have a counted attempt", n)
			}
			mu.Lock()
			back = true
			mu.Unlock()
			o.empty()
			for key := range 5 {
				var want []string
				for i := key; i < 50; i += 5 {
					want = append(want, fmt.Sprint(i))
				}
				if diff := cmp.Diff(want, b.types(fmt.Sprint(key))); diff != "" {
					t.Errorf("%d (-want +got):\n%s", key, diff)
				}
			}
		})
	}
}

// The destination returns 503 for some messages and accepts the next one.
func TestDivider_FlakyDestinationCountsNothing(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]func(outbox.PublisherFunc) outbox.Publisher{
		"divided":     func(f outbox.PublisherFunc) outbox.Publisher { return divided{f} },
		"not divided": func(f outbox.PublisherFunc) outbox.Publisher { return f },
	} {
		for how, named := range map[string]bool{"named": true, "not named": false} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				o := newDatabase(t)
				b := &broker{}
				var mu sync.Mutex
				random, asked := rand.New(rand.NewPCG(7, 7)), map[string]int{}
				publisher := kind(func(ctx context.Context, messages []outbox.Message) error {
					failed := map[string]error{}
					for i := range messages {
						mu.Lock()
						asked[messages[i].ID]++
						away := asked[messages[i].ID] <= 8 && random.IntN(3) > 0
						mu.Unlock()
						if away && !named {
							return outbox.RetryLater(errors.New("503"), 0)
						}
						if away {
							failed[messages[i].ID] = outbox.RetryLater(errors.New("503"), 0)
							continue
						}
						if err := b.Publish(ctx, messages[i:i+1]); err != nil {
							return err
						}
					}
					if len(failed) > 0 {
						return &outbox.PublishError{Failed: failed}
					}
					return nil
				})
				config := swift()
				config.MaxAttempts = 1
				for i := range 100 {
					o.add(to("shaky", fmt.Sprint(i%40), fmt.Sprint(i)))
				}
				o.relay(publisher, config)
				o.empty()
				o.wantDead(0)
			})
		}
	}
}

// The time of the outage counts, not the number of attempts.
func TestMaxOutage_DeadLettersMessages(t *testing.T) {
	t.Parallel()
	away := func(messages []outbox.Message) error {
		failed := map[string]error{}
		for i := range messages {
			failed[messages[i].ID] = outbox.RetryLater(errors.New("503"), 0)
		}
		return &outbox.PublishError{Failed: failed}
	}
	for name, publisher := range map[string]outbox.Publisher{
		"divided":     divided{func(_ context.Context, m []outbox.Message) error { return away(m) }},
		"not divided": outbox.PublisherFunc(func(_ context.Context, m []outbox.Message) error { return away(m) }),
		"no names":    outbox.PublisherFunc(func(context.Context, []outbox.Message) error { return errors.New("no broker") }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			config := swift()
			config.MaxAttempts, config.MaxOutage = 1, 50*time.Millisecond
			o.add(to("away", "k", "1"), to("away", "k", "2"), to("away", "", "3"))
			o.relay(publisher, config)
			o.empty()
			if got := o.text(`select string_agg(concat_ws(' ', type, class, attempts), ', ' order by type) from idem.dead_letters`); got != "1 unavailable 0, 2 unavailable 0, 3 unavailable 0" {
				t.Errorf("the dead letters are %s", got)
			}
		})
	}
}

// The messages are in the next call again, in order, and no attempt counts.
func TestRetryLater_WithoutADuration(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	publisher := divided{func(ctx context.Context, messages []outbox.Message) error {
		failed := map[string]error{}
		for _, m := range messages[1:] {
			failed[m.ID] = fmt.Errorf("later: %w", outbox.RetryLater(errRefused, 0))
		}
		if err := b.Publish(ctx, messages[:1]); err != nil || len(failed) == 0 {
			return err
		}
		return &outbox.PublishError{Failed: failed}
	}}
	config := swift()
	config.MaxAttempts = 1
	var want []string
	for i := range 40 {
		o.add(to("t", "k", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	o.relay(publisher, config)
	o.empty()
	b.wantTypes(t, want, "k")
}

// The Publisher is slow, and one key has many messages.
func TestRelay_LongKeyBlocksNoOther(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{}
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		time.Sleep(100 * time.Millisecond) // the latency of a broker; the test passes with any value
		return b.Publish(ctx, messages)
	})
	var want []string
	for i := range 60 {
		o.add(message("many", fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	o.add(message("one", "one"))
	config := swift()
	config.BatchSize = 20
	o.relay(publisher, config)
	o.empty()
	b.wantTypes(t, want, "many")
	if all := strings.Join(b.types(), " "); strings.HasSuffix(all, "one") {
		t.Errorf("it was published last: %s", all)
	}
}
