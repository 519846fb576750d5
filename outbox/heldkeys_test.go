package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
)

// The Publisher does not know keys, and would publish the messages after a refused one.
func TestRelay_HoldsOnlyTheFailedKey(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{refuse: refusing("a1")}
	dead := make(chan outbox.DeadLetter, 1)
	config := swift()
	config.MaxAttempts = 3
	config.OnDead = func(d outbox.DeadLetter) {
		if got := b.types("a"); len(got) > 0 {
			t.Errorf("%v left before the first message of the key was dead", got)
		}
		dead <- d
	}
	first := message("a", "a1")
	first.ID = outbox.NewID()
	o.add(first, message("a", "a2"), message("b", "b1"), message("", "c1"), message("a", "a3"), message("b", "b2"))
	o.relay(b, config)
	d := await(t, "the dead letter", dead)
	if d.ID != first.ID || d.Attempts != 3 || d.Reason != errRefused.Error() || d.Key != "a" || d.Class != "error" {
		t.Errorf("%+v", d)
	}
	o.empty()
	if diff := cmp.Diff([]string{"a2", "a3"}, b.types("a")); diff != "" {
		t.Errorf("of the key that was held back (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"b1", "b2"}, b.types("b")); diff != "" {
		t.Errorf("of another key (-want +got):\n%s", diff)
	}
	if n := b.tries()[first.ID]; n != 3 || b.number() != 5 {
		t.Errorf("%d attempts, %d messages were published", n, b.number())
	}
	if got := o.text(`select concat_ws('|', side, consumer, source, id, key, type, convert_from(payload, 'UTF8'), class, reason, attempts) from idem.dead_letters`); got !=
		"outbox||orders|"+first.ID+"|a|a1|of a1|error|the broker refuses the message|3" {
		t.Errorf("the dead letter is %s", got)
	}
}

func TestRelay_ThousandHeldKeysBlockNoOther(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	b := &broker{refuse: refusing("stuck")}
	var stuck []outbox.Message
	for i := range 1000 {
		stuck = append(stuck, message(fmt.Sprint("stuck ", i), "stuck"), message(fmt.Sprint("stuck ", i), "behind"))
	}
	o.add(stuck...)
	for i := range 100 {
		o.add(message("free", fmt.Sprint(i)))
	}
	config := swift()
	config.BatchSize, config.MaxAttempts = 50, 1000
	o.relay(b, config)
	eventually(t, "the others to be published", func() bool { return b.number() >= 100 })
	for i, what := range b.types() {
		if what != fmt.Sprint(i) {
			t.Fatalf("%s was published", what)
		}
	}
	eventually(t, "the messages of the thousand keys to be held", func() bool { return o.count(`select count(*) from idem.outbox where held`) == 2000 })
}

// The relay loses its session before it has stored all failures.
func TestRelay_KeepsOrderWithUnstoredFailures(t *testing.T) {
	t.Parallel()
	const keys, each = 600, 4
	o := newDatabase(t)
	o.exec(`insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type)
		select now(), gen_random_uuid(), 't', 'k' || i % 600, (i / 600)::text from generate_series(0, 2399) i`)
	var (
		mu    sync.Mutex
		next  = map[string]int{} // of a key
		tries = map[string]int{}
	)
	publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		failed := map[string]error{}
		for _, m := range messages {
			n, _ := strconv.Atoi(m.Type)
			if n > next[m.Key] {
				t.Errorf("message %d of a key was given before %d was published", n, next[m.Key])
			}
			if tries[m.ID]++; n%2 == 0 && tries[m.ID] <= 5 {
				failed[m.ID] = fmt.Errorf("try %d: %w", tries[m.ID], errRefused)
				continue
			}
			next[m.Key] = max(next[m.Key], n+1)
		}
		if len(failed) == 0 {
			return nil
		}
		return &outbox.PublishError{Failed: failed}
	})
	config := swift()
	config.MaxAttempts = 1_000_000
	_, stop := o.relay(publisher, config)
	for n := 100; n < 1800; n += 400 { // some messages are held, and others will be
		eventually(t, "some failures to be stored", func() bool { return o.count(`select count(*) from idem.outbox where held`) >= n || o.waiting() < 1800 })
		o.endSessions()
	}
	o.empty()
	stop()
	for key, n := range next {
		if n != each {
			t.Errorf("%d messages of %s", n, key)
		}
	}
	if len(next) != keys {
		t.Errorf("%d keys", len(next))
	}
}

// The relay returns to a message that was not sent, and passes failed messages a second time.
func TestRelay_RetriesNoMessageBeforeItsBackoff(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.add(message("", "unsent at first"))
	o.exec(`insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type)
		select now(), gen_random_uuid(), 't', CASE WHEN i % 2 = 0 THEN '' ELSE 'k' || i END, 'refused' from generate_series(1, 5000) i`)
	o.add(message("", "goes"))
	sent := false
	b := &broker{refuse: func(m *outbox.Message) error {
		switch {
		case m.Type == "refused":
			return errRefused
		case m.Type == "unsent at first" && !sent:
			sent = true
			return outbox.RetryLater(errRefused, 0)
		}
		return nil
	}}
	_, stop := o.relay(b, outbox.RelayConfig{MinPause: time.Hour})
	eventually(t, "all to be tried", func() bool {
		return b.number() == 2 && o.count(`select count(*) from idem.outbox where held and attempts > 0`) == 5000
	})
	stop()
	for id, n := range b.tries() {
		if n > 2 || n == 2 && !slices.ContainsFunc(b.all(), func(m outbox.Message) bool { return m.ID == id }) {
			t.Fatalf("a message was tried %d times", n)
		}
	}
}

func TestRelay_StoresAllAttemptsWhenStopped(t *testing.T) {
	t.Parallel()
	o := newDatabase(t)
	o.exec(`insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type)
		select now(), gen_random_uuid(), 't', '', 'refused' from generate_series(1, 10000) i`)
	seen := make(chan struct{})
	tries := 0
	b := &broker{refuse: func(*outbox.Message) error {
		if tries++; tries == 8000 {
			close(seen)
		}
		return errRefused
	}}
	_, stop := o.relay(b, outbox.RelayConfig{MaxAttempts: 1_000_000})
	await(t, "most of them to be refused", seen)
	stop()
	if n := o.count(`select sum(attempts) from idem.outbox`); n != tries {
		t.Errorf("%d attempts were made, and %d counted", tries, n)
	}
}

// An event that goes to several topics has one ID in all of them. A Publisher names messages by
// their IDs. So no call has two messages with one ID, and a failure concerns one of them only.
func TestRelay_SeparatesMessagesWithTheSameID(t *testing.T) {
	t.Parallel()
	for name, keepsOrder := range map[string]bool{"a Publisher": false, "an OrderKeeper": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newDatabase(t)
			b := &broker{refuse: func(m *outbox.Message) error {
				if m.Topic == "bad" {
					return errRefused
				}
				return nil
			}}
			var doubled atomic.Int64
			b.before = func(messages []outbox.Message) error {
				met := map[string]bool{}
				for _, m := range messages {
					if met[m.ID] {
						doubled.Add(1)
					}
					met[m.ID] = true
				}
				return nil
			}
			var publisher outbox.Publisher = b
			if keepsOrder {
				publisher = keepingOrder{b}
			}
			var want []string
			for range 20 {
				id := outbox.NewID()
				want = append(want, id)
				for _, topic := range []string{"one", "bad", "two"} {
					o.add(outbox.Message{ID: id, Topic: topic, Key: "a"})
				}
			}
			config := swift()
			config.MaxAttempts = 2
			o.relay(publisher, config)
			o.empty()
			if n := doubled.Load(); n > 0 {
				t.Errorf("%d messages have the ID of another message of their call", n)
			}
			left := map[string][]string{}
			for _, m := range b.all() {
				left[m.Topic] = append(left[m.Topic], m.ID)
			}
			if !slices.Equal(left["one"], want) || !slices.Equal(left["two"], want) || len(left) != 2 {
				t.Errorf("%d and %d have left, of %d of each", len(left["one"]), len(left["two"]), len(want))
			}
			if n := o.count(`select count(*) from idem.dead_letters where source = 'bad'`); n != len(want) || n != o.count(`select count(*) from idem.dead_letters`) {
				t.Errorf("%d messages of the refused topic are dead-lettered", n)
			}
		})
	}
}

// keepingOrder is a broker that is an OrderKeeper.
type keepingOrder struct{ *broker }

func (keepingOrder) KeepsOrder() bool { return true }
