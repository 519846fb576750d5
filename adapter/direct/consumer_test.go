package direct_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/direct"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
)

var soon = inbox.WithBackoff(time.Millisecond, 5*time.Millisecond)

// The consumer counts the failures of a message, and the relay counts none. If it did, it would
// dead-letter the message at once, because its MaxAttempts is 1.
func TestConsumer_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	newPool := func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }
	inboxtest.Run(t, inboxtest.Suite{Pool: newPool, New: func(t testing.TB, billing *pgxpool.Pool) inboxtest.Source {
		s := &services{t: t, shop: pgtest.New(t), billing: billing}
		return inboxtest.Source{
			Name: consumer, Ordered: true,
			Deliver: func(_ context.Context, messages ...inbox.Message) error {
				s.add(ledger.Outgoing("orders", messages)...)
				return nil
			},
			Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
				options = append(options, inbox.WithLanes(3))
				to, err := direct.NewConsumer(billing, consumer, direct.Handler(handle), direct.ConsumerConfig{Options: options})
				if err != nil {
					return err
				}
				return outbox.NewRelay(s.shop, to, outbox.RelayConfig{
					MaxAttempts: 1, Streams: 2, BatchSize: 50, MinPause: time.Millisecond, Poll: 20 * time.Millisecond,
				}).Run(ctx)
			},
			Left: func(context.Context) (int, error) { return count(t, s.shop, `select count(*) from idem.outbox`), nil },
		}
	}})
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
	var shipped atomic.Int64
	refuse := func(m inbox.Message) bool { return m.Type == "poison" }
	failing := s.consumer(s.billing, consumer, entering(refuse), inbox.WithBackoff(time.Hour, time.Hour))
	shipping := s.consumer(s.billing, "shipping", func(pgx.Tx, inbox.Message) error { shipped.Add(1); return nil })
	parcel := message("p", "parcel")
	parcel.Topic = "parcels"
	s.add(message("a", "poison"), message("a", "behind"), message("b", "1"), parcel)
	route := outbox.Route(map[string]outbox.Publisher{"orders": failing, "parcels": shipping})
	stop := s.run(route, outbox.RelayConfig{})
	s.eventually("the others to be handled", func() bool { return count(t, s.shop, `select count(*) from idem.outbox`) == 2 })
	s.add(message("b", "2"))
	s.eventually("a later message", func() bool { return len(s.types("b")) == 2 })
	stop()
	if shipped.Load() != 1 || len(s.types("a")) != 0 {
		t.Errorf("%d messages were shipped, and %d are behind the failing one", shipped.Load(), len(s.types("a")))
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
