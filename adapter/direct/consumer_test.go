package direct_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/adapter/direct"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

var soon = inbox.WithBackoff(time.Millisecond, 5*time.Millisecond)

// One handler in ten fails by chance, and relays come and go.
func TestMessagesOfOneServiceHaveTheirEffectInAnotherOnceAndInOrder(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	const keys, each = 8, 40
	var want []string
	for i := range each {
		want = append(want, fmt.Sprint(i))
		for k := range keys {
			tr.add(message(fmt.Sprint("key ", k), fmt.Sprint(i)))
		}
	}
	handle := entering(func(inbox.Message) bool { return rand.IntN(10) == 0 })
	config := outbox.RelayConfig{Streams: 2, BatchSize: 50}
	run := func() (stop func()) {
		return tr.relay(tr.billing, handle, config, soon, inbox.WithMaxAttempts(1000), inbox.WithLanes(3))
	}
	for n := range 3 {
		stop := run()
		tr.eventually("some of them", func() bool { return count(t, tr.billing, `select count(*) from books`) >= (n+1)*keys*each/5 })
		stop()
	}
	run()
	tr.empty()
	for k := range keys {
		if diff := cmp.Diff(want, tr.types(fmt.Sprint("key ", k))); diff != "" {
			t.Errorf("key %d (-want +got):\n%s", k, diff)
		}
	}
	if n := count(t, tr.shop, `select count(*) from idem.dead_letters`) + count(t, tr.billing, `select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d are dead", n)
	}
}

// Its dead letter is the consumer's, and is handled again by the process that relays, without anything else.
func TestMessageThatFailsHoldsBackItsKeyAloneAndDiesInTheInbox(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	var mended atomic.Bool
	poison := message("a", "poison")
	poison.ID = outbox.NewID()
	tr.add(poison, message("b", "1"), message("a", "behind"), message("", "keyless"))
	tries := 0
	var seen inbox.Message
	tr.relay(tr.billing, func(tx pgx.Tx, m inbox.Message) error {
		if m.Type == "poison" && !mended.Load() {
			if tries++; count(t, tr.billing, `select count(*) from books where key = 'a'`) > 0 {
				t.Error("it was overtaken by one of its key")
			}
			seen = m
			return errRefused
		}
		return enter(tx, m)
	}, outbox.RelayConfig{MaxAttempts: 1}, soon, inbox.WithMaxAttempts(5))
	tr.empty()
	if diff := cmp.Diff([]string{"behind"}, tr.types("a")); diff != "" || tries != 5 || len(tr.types("b")) != 1 || len(tr.types("")) != 1 {
		t.Errorf("%d tries (-want +got):\n%s", tries, diff)
	}
	if seen.ID != poison.ID || seen.Source != "orders" || seen.Headers["tenant"] != "t" || string(seen.Payload) != "of poison" {
		t.Errorf("%+v", seen)
	}
	if n := count(t, tr.shop, `select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d dead letters of the outbox", n)
	}
	if n := count(t, tr.billing, `select count(*) from idem.dead_letters where consumer = $1 and source = 'orders' and id = $2`, consumer, poison.ID); n != 1 {
		t.Errorf("%d dead letters of the inbox", n)
	}
	mended.Store(true)
	if err := inbox.Redrive(t.Context(), tr.billing, inbox.Ref{Consumer: consumer, Source: "orders", ID: poison.ID}); err != nil {
		t.Fatal(err)
	}
	tr.eventually("the dead letter to be handled", func() bool { return len(tr.types("a")) == 2 })
}

// What they need is away: the circuit opens, and closes when it is back.
func TestConsumerWhoseHandlersAllFailPausesAndLosesNothing(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	var back atomic.Bool
	var runs atomic.Int64
	for i := range 100 {
		tr.add(message(fmt.Sprint(i), "1"))
	}
	tr.relay(tr.billing, entering(func(inbox.Message) bool {
		if runs.Add(1) == 12 {
			back.Store(true)
		}
		return !back.Load()
	}), outbox.RelayConfig{}, inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond), inbox.WithCircuit(5, 20*time.Millisecond), inbox.WithMaxAttempts(12))
	tr.empty()
	if n := count(t, tr.billing, `select count(distinct id) from books`); n != 100 || count(t, tr.billing, `select count(*) from books`) != 100 {
		t.Errorf("%d have an effect", n)
	}
	if n := count(t, tr.shop, `select count(*) from idem.dead_letters`) + count(t, tr.billing, `select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d are dead", n)
	}
}

func TestDatabaseOfTheConsumerThatIsAwayCountsNothing(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	proxy := pgtest.Proxy(t, tr.billing.Config().ConnString())
	via := pgtest.Open(t, proxy.DSN())
	proxy.Refuse(pgproxy.Reset)
	proxy.Cut(pgproxy.Hangup)
	var away atomic.Int64
	for i := range 20 {
		tr.add(message(fmt.Sprint(i%4), fmt.Sprint(i)))
	}
	observer := observed(func(data outbox.TracePublishedData) {
		if data.Published == 0 && data.Err != nil {
			away.Add(1)
		}
	})
	tr.relay(via, enter, outbox.RelayConfig{MaxAttempts: 1, MaxPause: 10 * time.Millisecond, Observer: observer}, soon, inbox.WithMaxAttempts(1))
	tr.eventually("a few calls in vain", func() bool { return away.Load() >= 3 })
	proxy.Admit()
	tr.empty()
	if n := count(t, tr.billing, `select count(*) from books`); n != 20 {
		t.Errorf("%d effects", n)
	}
	if n := count(t, tr.shop, `select count(*) from idem.dead_letters`) + count(t, tr.billing, `select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d are dead", n)
	}
}

type observed func(outbox.TracePublishedData)

// TracePublished is told of a call.
func (o observed) TracePublished(_ context.Context, data outbox.TracePublishedData) { o(data) }

// All of them together take longer than a call may, and each is committed all the same.
func TestHandlersThatAreSlowAreGivenAsManyMessagesAsThereIsTimeFor(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	var messages []outbox.Message
	for i := range 60 {
		messages = append(messages, message(fmt.Sprint(i%7), fmt.Sprint(i)))
	}
	tr.add(messages...)
	tr.relay(tr.billing, func(tx pgx.Tx, m inbox.Message) error {
		_, err := tx.Exec(inbox.Context(tx), `select pg_sleep(0.05)`)
		if err != nil {
			return err
		}
		return enter(tx, m)
	}, outbox.RelayConfig{PublishTimeout: time.Second})
	tr.drains()
	if n := count(t, tr.billing, `select count(*) from books`); n != 60 {
		t.Errorf("%d effects", n)
	}
}

// A process may have died of what a relay begins with: so that is on record before it is tried, and a message that kills its process each time
// becomes a dead letter.
func TestWhatARelayBeginsWithIsAnnounced(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	tr.add(message("a", "1"))
	var begun atomic.Int64
	tr.relay(tr.billing, func(tx pgx.Tx, m inbox.Message) error {
		begun.Store(int64(count(t, tr.billing, `select count(*) from idem.inbox where id = $1 and begun`, m.ID)))
		return enter(tx, m)
	}, outbox.RelayConfig{})
	tr.empty()
	if begun.Load() != 1 {
		t.Errorf("%d attempts are announced", begun.Load())
	}
}

// By Route, a consumer that fails with one message holds up neither its other keys nor other consumers.
func TestConsumersShareARelayByTopic(t *testing.T) {
	t.Parallel()
	tr := newTrade(t)
	var mu sync.Mutex
	shipped := 0
	failing, err := direct.NewConsumer(tr.billing, consumer, entering(func(m inbox.Message) bool { return m.Type == "poison" }), direct.ConsumerConfig{Options: []inbox.Option{inbox.WithBackoff(time.Hour, time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	shipping, err := direct.NewConsumer(tr.billing, "shipping", func(pgx.Tx, inbox.Message) error {
		mu.Lock()
		defer mu.Unlock()
		shipped++
		return nil
	}, direct.ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	parcel := message("p", "parcel")
	parcel.Topic = "parcels"
	tr.add(message("a", "poison"), message("a", "behind"), message("b", "1"), parcel)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- outbox.NewRelay(tr.shop, outbox.Route(map[string]outbox.Publisher{"orders": failing, "parcels": shipping}), outbox.RelayConfig{Poll: 20 * time.Millisecond}).Run(ctx)
	}()
	tr.eventually("the others to be handled", func() bool { return count(t, tr.shop, `select count(*) from idem.outbox`) == 2 })
	tr.add(message("b", "2"))
	tr.eventually("one that comes afterwards", func() bool { return len(tr.types("b")) == 2 })
	cancel()
	if err := <-ended; err != nil || shipped != 1 || len(tr.types("a")) != 0 {
		t.Errorf("%d, %v", shipped, err)
	}
	if n := count(t, tr.shop, `select count(*) from idem.outbox where held and coalesce(attempts, 0) = 0`); n != 2 {
		t.Errorf("%d are held back without an attempt of the relay's", n)
	}
}

func TestConsumerThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for what, err := range map[string]func() (*direct.Consumer, error){
		"no pool": func() (*direct.Consumer, error) {
			return direct.NewConsumer(nil, consumer, enter, direct.ConsumerConfig{})
		},
		"no handler": func() (*direct.Consumer, error) {
			return direct.NewConsumer(pool, consumer, nil, direct.ConsumerConfig{})
		},
		"no name": func() (*direct.Consumer, error) { return direct.NewConsumer(pool, "", enter, direct.ConsumerConfig{}) },
		"options": func() (*direct.Consumer, error) {
			return direct.NewConsumer(pool, consumer, enter, direct.ConsumerConfig{Options: []inbox.Option{inbox.WithMaxAttempts(0)}})
		},
	} {
		if _, err := err(); err == nil {
			t.Error(what)
		}
	}
}
