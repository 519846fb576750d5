package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// An unavailable destination would hold all keys.
func TestRetryLater_HoldsOnlyTheKey(t *testing.T) {
	t.Parallel()
	const others = 20
	for name, test := range map[string]struct {
		after, pause time.Duration // pause is the backoff of the destination
		times        int           // how often a1 is postponed at least
	}{
		"a duration":  {10 * time.Millisecond, time.Millisecond, 5},
		"no duration": {0, time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			later := 0
			b := &broker{}
			// a1 is available only after all messages of other keys.
			b.refuse = func(m *outbox.Message) error {
				if m.Type == "a1" && (later < test.times || len(b.published) < others) {
					later++
					return outbox.RetryLater(errRefused, test.after)
				}
				return nil
			}
			config := swift()
			config.MaxAttempts, config.MinPause, config.MaxPause = 1, test.pause, test.pause
			config.Observer = observing(func(data outbox.TracePublishedData) {
				if data.Err != nil || data.Failed != 0 {
					t.Errorf("the destination is not away: %+v", data)
				}
			})
			messages := []outbox.Message{message("a", "a1"), message("a", "a2")}
			for i := range others {
				messages = append(messages, to([]string{"orders", "invoices"}[i%2], fmt.Sprint(i%4), fmt.Sprint(i)))
			}
			o.add(messages...)
			o.relay(outbox.Route(map[string]outbox.Publisher{"*": b}), config)
			o.empty()
			if b.wantTypes(t, []string{"a1", "a2"}, "a"); b.number() != others+2 {
				t.Errorf("%d messages were published", b.number())
			}
			o.wantDead(0)
		})
	}
}

// The backoff settings of the relay do not limit it.
func TestRetryLater_SetsTheRetryTime(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{refuse: func(*outbox.Message) error { return outbox.RetryLater(errRefused, 20*time.Minute) }}
	o.add(message("a", "1"))
	o.relay(b, swift())
	eventually(t, "the message to be held", func() bool {
		return o.count(`select count(*) from idem.outbox where held and class = 'unavailable' and attempts = 0 and next_at between now() + interval '15 min' and now() + interval '25 min'`) == 1
	})
}

type observing func(outbox.TracePublishedData)

func (o observing) TracePublished(_ context.Context, data outbox.TracePublishedData) { o(data) }

// companion is a Publisher with a background task.
type companion struct {
	broker
	begun, ended chan struct{}
}

// RunBeside is the background task.
func (c *companion) RunBeside(ctx context.Context) {
	close(c.begun)
	<-ctx.Done()
	close(c.ended)
	panic(errors.New("as it ends"))
}

func TestRunBeside_RunsAsLongAsTheRelay(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	c := &companion{begun: make(chan struct{}), ended: make(chan struct{})}
	_, stop := o.relay(outbox.Route(map[string]outbox.Publisher{"orders": c}), swift())
	await(t, "its beginning", c.begun)
	o.add(message("a", "1"))
	o.empty()
	stop()
	select {
	case <-c.ended:
	default:
		t.Error("RunBeside has outlasted the relay")
	}
}
