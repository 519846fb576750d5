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

// One handler in ten fails at random, and relays start and stop.
func TestConsumer_HandlesMessagesOnceAndInOrder(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	const keys, each = 8, 25
	var want []string
	for i := range each {
		want = append(want, fmt.Sprint(i))
		for k := range keys {
			s.add(message(fmt.Sprint("key ", k), fmt.Sprint(i)))
		}
	}
	handle := entering(func(inbox.Message) bool { return rand.IntN(10) == 0 })
	config := outbox.RelayConfig{Streams: 2, BatchSize: 50}
	run := func() (stop func()) {
		return s.relay(s.billing, handle, config, soon, inbox.WithMaxAttempts(1000), inbox.WithLanes(3))
	}
	for n := range 3 {
		stop := run()
		s.eventually("some of them", func() bool { return count(t, s.billing, `select count(*) from books`) >= (n+1)*keys*each/5 })
		stop()
	}
	run()
	s.empty()
	for k := range keys {
		if diff := cmp.Diff(want, s.types(fmt.Sprint("key ", k))); diff != "" {
			t.Errorf("key %d (-want +got):\n%s", k, diff)
		}
	}
	if n := count(t, s.shop, `select count(*) from idem.dead_letters`) + count(t, s.billing, `select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// Its dead letter is in the inbox. The process of the relay handles it again after a redrive.
func TestConsumer_FailingMessageBlocksOnlyItsKey(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var mended atomic.Bool
	poison := message("a", "poison")
	poison.ID = outbox.NewID()
	s.add(poison, message("b", "1"), message("a", "behind"), message("", "keyless"))
	tries := 0
	var seen inbox.Message
	s.relay(s.billing, func(tx pgx.Tx, m inbox.Message) error {
		if m.Type == "poison" && !mended.Load() {
			if tries++; count(t, s.billing, `select count(*) from books where key = 'a'`) > 0 {
				t.Error("a later message of its key was handled before it")
			}
			seen = m
			return errRefused
		}
		return enter(tx, m)
	}, outbox.RelayConfig{MaxAttempts: 1}, soon, inbox.WithMaxAttempts(5))
	s.empty()
	if diff := cmp.Diff([]string{"behind"}, s.types("a")); diff != "" || tries != 5 || len(s.types("b")) != 1 || len(s.types("")) != 1 {
		t.Errorf("%d tries (-want +got):\n%s", tries, diff)
	}
	if seen.ID != poison.ID || seen.Source != "orders" || seen.Headers["tenant"] != "t" || string(seen.Payload) != "of poison" {
		t.Errorf("%+v", seen)
	}
	if n := count(t, s.shop, `select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d dead letters of the outbox", n)
	}
	if n := count(t, s.billing, `select count(*) from idem.dead_letters where consumer = $1 and source = 'orders' and id = $2`, consumer, poison.ID); n != 1 {
		t.Errorf("%d dead letters of the inbox", n)
	}
	mended.Store(true)
	if err := inbox.Redrive(t.Context(), s.billing, inbox.Ref{Consumer: consumer, Source: "orders", ID: poison.ID}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the dead letter to be handled", func() bool { return len(s.types("a")) == 2 })
}

// The circuit opens, and closes when the handlers succeed.
func TestConsumer_PausesWhileAllHandlersFail(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var back atomic.Bool
	var runs atomic.Int64
	for i := range 100 {
		s.add(message(fmt.Sprint(i), "1"))
	}
	s.relay(s.billing, entering(func(inbox.Message) bool {
		if runs.Add(1) == 12 {
			back.Store(true)
		}
		return !back.Load()
	}), outbox.RelayConfig{}, inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond), inbox.WithCircuit(5, 20*time.Millisecond), inbox.WithMaxAttempts(12))
	s.empty()
	if n := count(t, s.billing, `select count(distinct id) from books`); n != 100 || count(t, s.billing, `select count(*) from books`) != 100 {
		t.Errorf("%d messages have an effect", n)
	}
	if n := count(t, s.shop, `select count(*) from idem.dead_letters`) + count(t, s.billing, `select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

func TestConsumer_UnavailableDatabaseCountsNothing(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	proxy := pgtest.Proxy(t, s.billing.Config().ConnString())
	via := pgtest.Open(t, proxy.DSN())
	proxy.Refuse(pgproxy.Reset)
	proxy.Cut(pgproxy.Hangup)
	var away atomic.Int64
	for i := range 20 {
		s.add(message(fmt.Sprint(i%4), fmt.Sprint(i)))
	}
	observer := observed(func(data outbox.TracePublishedData) {
		if data.Published == 0 && data.Err != nil {
			away.Add(1)
		}
	})
	s.relay(via, enter, outbox.RelayConfig{MaxAttempts: 1, MaxPause: 10 * time.Millisecond, Observer: observer}, soon, inbox.WithMaxAttempts(1))
	s.eventually("a few failed calls", func() bool { return away.Load() >= 3 })
	proxy.Admit()
	s.empty()
	if n := count(t, s.billing, `select count(*) from books`); n != 20 {
		t.Errorf("%d effects", n)
	}
	if n := count(t, s.shop, `select count(*) from idem.dead_letters`) + count(t, s.billing, `select count(*) from idem.dead_letters`); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

type observed func(outbox.TracePublishedData)

func (o observed) TracePublished(_ context.Context, data outbox.TracePublishedData) { o(data) }

// All handlers together take longer than a call. Each message is committed all the same.
func TestConsumer_AdjustsTheBatchToSlowHandlers(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var messages []outbox.Message
	for i := range 40 {
		messages = append(messages, message(fmt.Sprint(i%7), fmt.Sprint(i)))
	}
	s.add(messages...)
	s.relay(s.billing, func(tx pgx.Tx, m inbox.Message) error {
		_, err := tx.Exec(inbox.Context(tx), `select pg_sleep(0.05)`)
		if err != nil {
			return err
		}
		return enter(tx, m)
	}, outbox.RelayConfig{PublishTimeout: time.Second})
	s.empty()
	if n := count(t, s.billing, `select count(*) from books`); n != 40 {
		t.Errorf("%d effects", n)
	}
}

// An earlier process may have died of them. So the attempt is stored before it begins, and a
// message that kills its process each time is dead-lettered.
func TestConsumer_AnnouncesTheFirstMessagesOfARelay(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	s.add(message("a", "1"))
	var begun atomic.Int64
	s.relay(s.billing, func(tx pgx.Tx, m inbox.Message) error {
		begun.Store(int64(count(t, s.billing, `select count(*) from idem.inbox where id = $1 and begun`, m.ID)))
		return enter(tx, m)
	}, outbox.RelayConfig{})
	s.empty()
	if begun.Load() != 1 {
		t.Errorf("%d attempts are stored", begun.Load())
	}
}

// A consumer with a failing message blocks neither its other keys nor other consumers.
func TestConsumer_SharesARelayByRoute(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	var mu sync.Mutex
	shipped := 0
	failing, err := direct.NewConsumer(s.billing, consumer, entering(func(m inbox.Message) bool { return m.Type == "poison" }), direct.ConsumerConfig{Options: []inbox.Option{inbox.WithBackoff(time.Hour, time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	shipping, err := direct.NewConsumer(s.billing, "shipping", func(pgx.Tx, inbox.Message) error {
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
	s.add(message("a", "poison"), message("a", "behind"), message("b", "1"), parcel)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- outbox.NewRelay(s.shop, outbox.Route(map[string]outbox.Publisher{"orders": failing, "parcels": shipping}), outbox.RelayConfig{Poll: 20 * time.Millisecond}).Run(ctx)
	}()
	s.eventually("the others to be handled", func() bool { return count(t, s.shop, `select count(*) from idem.outbox`) == 2 })
	s.add(message("b", "2"))
	s.eventually("a later message", func() bool { return len(s.types("b")) == 2 })
	cancel()
	if err := <-ended; err != nil || shipped != 1 || len(s.types("a")) != 0 {
		t.Errorf("%d, %v", shipped, err)
	}
	if n := count(t, s.shop, `select count(*) from idem.outbox where held and coalesce(attempts, 0) = 0`); n != 2 {
		t.Errorf("%d messages are held without a counted attempt", n)
	}
}

func TestNewConsumer_ChecksItsArguments(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	_, noPool := direct.NewConsumer(nil, consumer, enter, direct.ConsumerConfig{})
	_, noHandler := direct.NewConsumer(pool, consumer, nil, direct.ConsumerConfig{})
	_, noName := direct.NewConsumer(pool, "", enter, direct.ConsumerConfig{})
	_, options := direct.NewConsumer(pool, consumer, enter, direct.ConsumerConfig{Options: []inbox.Option{inbox.WithMaxAttempts(0)}})
	if noPool == nil || noHandler == nil || noName == nil || options == nil {
		t.Error(noPool, noHandler, noName, options)
	}
}
