package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// watch is a Publisher that measures how long messages have waited since they were added, but for those that are in the way.
type watch struct {
	outbox.PublisherFunc // of those that are in the way

	mu    sync.Mutex
	added map[string]time.Time // by type
	late  []time.Duration
}

// Publish takes everything but what is in the way.
func (w *watch) Publish(ctx context.Context, messages []outbox.Message) error {
	inTheWay := slices.DeleteFunc(slices.Clone(messages), func(m outbox.Message) bool { return m.Type != "in the way" })
	var err error
	if len(inTheWay) > 0 {
		if err = w.PublisherFunc(ctx, inTheWay); err != nil && !errors.As(err, new(*outbox.PublishError)) {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range messages {
		if at, ok := w.added[m.Type]; ok {
			w.late = append(w.late, time.Since(at))
			delete(w.added, m.Type)
		}
	}
	return err
}

// One message each 50 ms, while others are in the way that are refused, or whose destination is slow: how late are they?
func BenchmarkLate(b *testing.B) {
	keyless := func(int) outbox.Message { return outbox.Message{Topic: "orders", Type: "in the way"} }
	ofOwnKey := func(i int) outbox.Message {
		return outbox.Message{Topic: "orders", Key: fmt.Sprint("in the way ", i), Type: "in the way"}
	}
	slow := func(i int) outbox.Message {
		return outbox.Message{Topic: fmt.Sprint("slow ", i%100), Key: "k", Type: "in the way"}
	}
	oneSlow := func(int) outbox.Message { return outbox.Message{Topic: "slow", Key: "k", Type: "in the way"} }
	unnamed := func(context.Context, []outbox.Message) error { return errors.New("no") }
	for _, c := range []struct {
		name   string
		number int
		of     func(i int) outbox.Message
		answer outbox.PublisherFunc
		more   int // how many more come with each of the others, which have seven keys then
	}{
		{"nothing in the way", 0, keyless, nil, 0},
		{"named without a key", 20_000, keyless, refuse, 0},
		{"named without a key", 200_000, keyless, refuse, 0},
		{"named of own keys", 20_000, ofOwnKey, refuse, 0},
		{"not named", 200, ofOwnKey, unnamed, 0},
		{"not named", 2_000, ofOwnKey, unnamed, 0},
		{"not named", 20_000, ofOwnKey, unnamed, 0},
		{"not named, and one more with each", 300, ofOwnKey, unnamed, 1},
		{"not named, and four more with each", 1, ofOwnKey, unnamed, 4},
		{"for one slow destination", 150, oneSlow, second, 0},
		{"for a hundred slow destinations", 1000, slow, second, 0},
	} {
		b.Run(fmt.Sprintf("%s/%d", c.name, c.number), func(b *testing.B) { late(b, c.number, c.more, c.of, c.answer) })
	}
}

// refuse names all that it is given.
func refuse(_ context.Context, messages []outbox.Message) error {
	failed := map[string]error{}
	for i := range messages {
		failed[messages[i].ID] = errRefused
	}
	return &outbox.PublishError{Failed: failed}
}

// second takes a second for each message.
func second(ctx context.Context, messages []outbox.Message) error {
	for range messages {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// tenants is a watch that has a destination for each topic.
type tenants struct{ *watch }

func (tenants) Destination(topic string) string { return topic }

func late(b *testing.B, number, more int, of func(i int) outbox.Message, answer outbox.PublisherFunc) {
	o := newOffice(b)
	for i := 0; i < number; {
		var some []outbox.Message
		for ; i < number && len(some) < 5000; i++ {
			some = append(some, of(i))
		}
		o.add(some...)
	}
	w := &watch{PublisherFunc: answer, added: map[string]time.Time{}}
	var publisher outbox.Publisher = w
	if number > 0 && of(0).Topic != "orders" {
		publisher = tenants{w}
	}
	o.relay(publisher, outbox.RelayConfig{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	b.ResetTimer()
	for i := range b.N {
		what := fmt.Sprint(i)
		w.mu.Lock()
		w.added[what] = time.Now()
		w.mu.Unlock()
		m := outbox.Message{Topic: "orders", Key: what, Type: what}
		var some []outbox.Message
		for range more {
			m.Key, some = fmt.Sprint(i%7), append(some, of(number))
			number++
		}
		o.add(append(some, m)...)
		time.Sleep(50 * time.Millisecond)
	}
	eventually(b, "all of them to leave", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.late) == b.N
	})
	b.StopTimer()
	slices.Sort(w.late)
	overdue := len(w.late) - b.N
	for _, d := range w.late {
		if d > 2*time.Second {
			overdue++
		}
	}
	b.ReportMetric(float64(w.late[b.N/2].Milliseconds()), "ms-half")
	b.ReportMetric(float64(w.late[b.N-1].Milliseconds()), "ms-last")
	b.ReportMetric(float64(overdue), "over-2s")
}
