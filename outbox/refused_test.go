package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// What a relay has not written down when it dies, the next one finds out again.
func TestOrderOfKeysIsKeptWhileFailuresAreYetToBeWrittenDown(t *testing.T) {
	t.Parallel()
	const keys, each = 600, 4
	o := newOffice(t)
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
	for n := 100; n < 1800; n += 400 { // these are held back, and others are to be
		eventually(t, "some to be written down", func() bool { return o.count(`select count(*) from idem.outbox where held`) >= n || o.waiting() < 1800 })
		o.exec(`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'idem relay' and datname = current_database()`)
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

// The relay goes back to a message that was not sent, and comes by those again that have failed behind it.
func TestMessageThatHasFailedIsNotTriedBeforeItsPauseAlsoIfThatIsNotWrittenDown(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
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

// A relay that is stopped writes down what has failed.
func TestRelayThatIsStoppedHasCountedEachAttempt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
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
