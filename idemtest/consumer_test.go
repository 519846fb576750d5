package idemtest_test

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/inbox"
)

// consume handles a message, and returns an error if the message must be delivered again.
type consume func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error

type consumerCase struct {
	name    string
	breaks  string
	consume consume
	change  func(s *idemtest.ConsumerSuite)
}

func consumerSuite(f consume) idemtest.ConsumerSuite {
	deliver := func(id, payload string) idemtest.Delivery {
		return func(ctx context.Context, pool *pgxpool.Pool) error {
			return f(ctx, pool, inbox.Message{Source: "payments", ID: id, Payload: []byte(payload)})
		}
	}
	return idemtest.ConsumerSuite{
		New: func(t testing.TB) *pgxpool.Pool {
			pool := idemtest.Pool(t)
			exec(t, pool, schema, `CREATE TABLE seen (id text PRIMARY KEY)`)
			return pool
		},
		Deliver: deliver("p-1", "10"), Next: deliver("p-2", "10"), Other: deliver("p-1", "20"),
		Effects:  count("orders"),
		Patience: 6 * time.Second,
	}
}

func (c consumerCase) labels() (name, breaks, also string) { return c.name, c.breaks, "" }

func (c consumerCase) run(t testing.TB, times time.Duration) {
	suite := consumerSuite(c.consume)
	if c.change != nil {
		c.change(&suite)
	}
	suite.Patience *= times
	idemtest.Consumer(t, suite)
}

func TestConsumer_FindsEachBadConsumer(t *testing.T) { findsEach(t, badConsumers) }

func TestConsumer_AcceptsEachGoodConsumer(t *testing.T) { acceptsEach(t, goodConsumers) }

var errLater = errors.New("to be delivered again")

// settled converts the result of the inbox for a broker: nil acknowledges the message.
func settled(outcome inbox.Outcome, err error) error {
	switch {
	case outcome.State == inbox.Retry:
		return errors.Join(errLater, err)
	case outcome.State == "":
		return err
	}
	return nil
}

func enter(ctx context.Context, m inbox.Message) func(tx pgx.Tx) error {
	return func(tx pgx.Tx) error { return enterOn(ctx, tx, m) }
}

func enterOn(ctx context.Context, db rower, m inbox.Message) error {
	_, err := insert(ctx, db, m.Source, string(m.Payload))
	return err
}

var goodConsumers = []consumerCase{
	{name: "Handle", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		return settled(inbox.Handle(ctx, pool, "books", m, enter(ctx, m)))
	}},
	{name: "Batch of one", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		outcomes, err := inbox.Batch(ctx, pool, "books", []inbox.Message{m}, func(tx pgx.Tx, m inbox.Message) error { return enterOn(ctx, tx, m) })
		if len(outcomes) == 0 {
			return err
		}
		return settled(outcomes[0], err)
	}},
	{name: "HandleTx in a transaction of its own", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return settled(inbox.HandleTx(ctx, tx, "books", m, enter(ctx, m)))
		})
	}},
	{name: "Do by the id of the message", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		_, err := idem.Do(ctx, pool, idem.Scope("books", m.Source), m.ID, idem.HashBytes(m.Payload), func(tx pgx.Tx) (idem.Response, error) {
			return idem.Response{}, enterOn(ctx, tx, m)
		})
		return err
	}},
}

var badConsumers = []consumerCase{
	{name: "no record at all", breaks: "on-record", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		return enterOn(ctx, pool, m)
	}},
	{name: "memory of the process", breaks: "on-record", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		all, _ := seen.LoadOrStore(pool, &sync.Map{})
		if _, there := all.(*sync.Map).LoadOrStore(m.ID, true); there {
			return nil
		}
		return enterOn(ctx, pool, m)
	}},
	{name: "effect on the pool", breaks: "effect-in-transaction", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		return settled(inbox.Handle(ctx, pool, "books", m, func(pgx.Tx) error { return enterOn(ctx, pool, m) }))
	}},
	// Known from watermill's Deduplicator, NousResearch/hermes-agent#62860.
	{name: "marked before the effect", breaks: "effect-with-record", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		outcome, err := inbox.Handle(ctx, pool, "books", m, func(pgx.Tx) error { return nil })
		if outcome.State != inbox.Done {
			return settled(outcome, err)
		}
		return enterOn(ctx, pool, m)
	}},
	{name: "marked after the effect", breaks: "effect-in-transaction", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		var n int
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM idem.inbox WHERE id = $1 AND state = 'handled'", m.ID).Scan(&n); err != nil || n > 0 {
			return err
		}
		unlock := exclusive(pool)
		defer unlock()
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM idem.inbox WHERE id = $1 AND state = 'handled'", m.ID).Scan(&n); err != nil || n > 0 {
			return err
		}
		if err := enterOn(ctx, pool, m); err != nil {
			return err
		}
		return settled(inbox.Handle(ctx, pool, "books", m, func(pgx.Tx) error { return nil }))
	}, change: func(s *idemtest.ConsumerSuite) { s.Other = nil }},
	{name: "acknowledged whatever the outcome", breaks: "acknowledged-behind-effect", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		inbox.Handle(ctx, pool, "books", m, enter(ctx, m))
		return nil
	}},
	{name: "acknowledged without reading the outcome", breaks: "acknowledged-behind-effect", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		_, err := inbox.Handle(ctx, pool, "books", m, func(tx pgx.Tx) error {
			if err := enterOn(ctx, tx, m); err != nil {
				return errors.New("cannot enter " + m.ID) // loses the cause
			}
			return nil
		})
		if errors.Is(err, inbox.ErrMismatch) || err == nil || ctx.Err() == nil {
			return nil
		}
		return err
	}},
	{name: "acknowledged on a timer", breaks: "acknowledged-behind-effect", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		handled := make(chan error, 1)
		go func() {
			ctx := context.WithoutCancel(ctx)
			handled <- settled(inbox.Handle(ctx, pool, "books", m, enter(ctx, m)))
		}()
		select {
		case err := <-handled:
			return err
		case <-ctx.Done():
			return nil
		case <-time.After(20 * time.Millisecond): // the caller waits no longer
			return nil
		}
	}, change: func(s *idemtest.ConsumerSuite) { s.Other = nil }},
	{name: "a slow message is acknowledged on a timer", breaks: "acknowledged-behind-effect", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		handle := func() error { return settled(inbox.Handle(ctx, pool, "books", m, enter(ctx, m))) }
		if m.ID == "p-1" {
			return handle()
		}
		ctx = context.WithoutCancel(ctx)
		go func() {
			time.Sleep(200 * time.Millisecond) // the slow part
			_ = handle()
		}()
		return nil
	}, change: func(s *idemtest.ConsumerSuite) { s.Other = nil }},
	{name: "acknowledged while in progress", breaks: "acknowledged-behind-effect", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		_, err := idem.Do(ctx, pool, idem.Scope("books", m.Source), m.ID, idem.HashBytes(m.Payload), func(tx pgx.Tx) (idem.Response, error) {
			return idem.Response{}, enterOn(ctx, tx, m)
		}, idem.WithWait(0))
		if errors.Is(err, idem.ErrInProgress) {
			return nil
		}
		return err
	}},
	{name: "identified by the payload", breaks: "every-message", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		m.ID = idem.HashBytes(m.Payload).String()
		return settled(inbox.Handle(ctx, pool, "books", m, enter(ctx, m)))
	}, change: func(s *idemtest.ConsumerSuite) { s.Other = nil }},
	// Known from watermill's Deduplicator (Adler-32), DeytaHQ/khora#738.
	{name: "identified by a hash of one byte", breaks: "every-message", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		short := fnv.New32()
		short.Write([]byte(m.ID[:1]))
		m.ID = string('a' + rune(short.Sum32()%26))
		return settled(inbox.Handle(ctx, pool, "books", m, enter(ctx, m)))
	}, change: func(s *idemtest.ConsumerSuite) { s.Other = nil }},
	{name: "identified by the time of arrival", breaks: "one-key", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		m.ID += time.Now().Format(time.RFC3339Nano)
		return settled(inbox.Handle(ctx, pool, "books", m, enter(ctx, m)))
	}},
	{name: "payload not passed to the inbox", breaks: "other-message-kept", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		return settled(inbox.Handle(ctx, pool, "books", inbox.Message{Source: m.Source, ID: m.ID}, enter(ctx, m)))
	}},
	{name: "payload is part of the id", breaks: "payload-refused", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		m.ID += string(m.Payload)
		return settled(inbox.Handle(ctx, pool, "books", m, enter(ctx, m)))
	}},
	// Known from Zipstack/unstract#2101 (kept for less than the longest run).
	{name: "remembered for a minute", breaks: "remembered", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		return settled(inbox.Handle(ctx, pool, "books", m, enter(ctx, m), inbox.WithRetention(time.Minute)))
	}},
	{name: "effect in the background", breaks: "effect-with-record", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		return settled(inbox.Handle(ctx, pool, "books", m, func(pgx.Tx) error {
			go func() {
				time.Sleep(2 * time.Second) // a slow queue
				enterOn(context.Background(), pool, m)
			}()
			return nil
		}))
	}},
	// Known from own-pay/OwnPay#222.
	{name: "another system is called inside", breaks: "effect-in-transaction", consume: func(ctx context.Context, pool *pgxpool.Pool, m inbox.Message) error {
		return settled(inbox.Handle(ctx, pool, "books", m, func(tx pgx.Tx) error {
			bank(pool).Add(1)
			return enterOn(ctx, tx, m)
		}))
	}, change: func(s *idemtest.ConsumerSuite) {
		s.Effects = func(ctx context.Context, pool *pgxpool.Pool) (int, error) { return int(bank(pool).Load()), nil }
	}},
}

var seen, locks sync.Map

// exclusive locks a mutex that belongs to pool.
func exclusive(pool *pgxpool.Pool) (unlock func()) {
	mu, _ := locks.LoadOrStore(pool, &sync.Mutex{})
	mu.(*sync.Mutex).Lock()
	return mu.(*sync.Mutex).Unlock
}
