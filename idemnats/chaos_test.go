package idemnats_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/idemnats"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/pgproxy"
	"github.com/idem-go/idem/internal/pgtest"
	"github.com/idem-go/idem/outbox"
)

// How large the chaos is: go test -run Chaos -timeout 60m -args -messages 100000 -during 4m
var (
	chaosMessages = flag.Int("messages", 2000, "how many messages a chaos has")
	chaosDuring   = flag.Duration("during", 4*time.Second, "for how long they are written, while faults go on")
)

const (
	chaosKeys   = 41  // poison is of every key
	poisonEvery = 400 // one message in so many can never be handled
)

func TestChaosLosesDoublesAndReordersNothing(t *testing.T) {
	t.Parallel()
	newChaos(t).run(1, idemnats.ConsumerConfig{Ordered: true})
}

func TestChaosWithoutOrderLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	newChaos(t).run(3, idemnats.ConsumerConfig{})
}

// chaos is an outbox, its relay, a broker and consumers, all of which are broken again and again while messages pass.
type chaos struct {
	*ledger
	broker *broker
	stream jetstream.Stream
	proxy  *pgproxy.Proxy
	way    *pgxpool.Pool // to the database, by the proxy
	kill   chan struct{} // takes one consumer or relay
	faults map[string]int
}

func newChaos(t *testing.T) *chaos {
	dsn := pgtest.DSN(t)
	c := &chaos{ledger: &ledger{t: t, pool: pgtest.Open(t, dsn)}, broker: newBroker(t), proxy: pgtest.Proxy(t, dsn), kill: make(chan struct{}), faults: map[string]int{}}
	c.way = pgtest.Open(t, c.proxy.DSN(), func(config *pgxpool.Config) { config.MaxConns = 10 })
	c.exec(`CREATE TABLE ledger (line bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, payload text NOT NULL)`)
	// The window is so short that what is published again is stored again, too.
	c.stream = newStream(t, c.broker.connect(), func(s *jetstream.StreamConfig) { s.Duplicates = 100 * time.Millisecond })
	newSource(t, c.stream, func(s *jetstream.ConsumerConfig) { s.AckWait, s.MaxAckPending = time.Second, 5000 })
	return c
}

func (c *chaos) run(consumers int, config idemnats.ConsumerConfig) {
	config.Logger = quiet
	config.Options = []inbox.Option{inbox.WithMaxAttempts(8), inbox.WithPause(5*time.Millisecond, 20*time.Millisecond)}
	ctx, stop := context.WithTimeout(c.t.Context(), 10*limit+10**chaosDuring)
	var all sync.WaitGroup
	defer func() { stop(); all.Wait() }()
	for range consumers {
		all.Go(func() { c.again(ctx, func(ctx context.Context) { c.consume(ctx, config) }) })
	}
	all.Go(func() { c.again(ctx, c.relay) })

	writing, written := context.WithCancel(ctx)
	var faults sync.WaitGroup
	faults.Go(func() { c.breakThings(writing) })
	c.write(ctx)
	written()
	faults.Wait()

	dead := *chaosMessages / poisonEvery
	c.waitFor(ctx, fmt.Sprintf(`SELECT (SELECT count(*) FROM idem.dead_letters) >= %d AND (SELECT count(DISTINCT payload) FROM ledger) >= %d`, dead, *chaosMessages-dead))
	c.audit(dead, config.Ordered)
}

// write says of each message in an outbox that it was written, in transactions of which some are rolled back.
func (c *chaos) write(ctx context.Context) {
	const together = 20
	pause := time.NewTicker(*chaosDuring * together / time.Duration(*chaosMessages))
	defer pause.Stop()
	for n := 0; n < *chaosMessages; n += together {
		<-pause.C
		err := errors.Join(c.add(ctx, n, together, "never "), c.add(ctx, n, together, ""))
		if err != nil {
			c.t.Error(err)
			return
		}
	}
}

var errRolledBack = errors.New("rolled back")

func (c *chaos) add(ctx context.Context, n, together int, mark string) error {
	var messages []outbox.Message
	for i := n; i < n+together; i++ {
		messages = append(messages, outbox.Message{Topic: "orders", Key: fmt.Sprint("key ", i%chaosKeys), Type: "Written", Payload: fmt.Appendf(nil, "%s%08d", mark, i)})
	}
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		if err := outbox.Add(ctx, tx, messages...); err != nil || mark == "" {
			return err
		}
		return errRolledBack
	})
	if mark != "" && errors.Is(err, errRolledBack) {
		return nil
	}
	return err
}

// again runs f again and again until ctx ends. What comes by c.kill ends one run.
func (c *chaos) again(ctx context.Context, f func(context.Context)) {
	for ctx.Err() == nil {
		one, end := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { defer close(done); f(one) }()
		select {
		case <-c.kill:
		case <-done:
			time.Sleep(5 * time.Millisecond)
		case <-ctx.Done():
		}
		end()
		<-done
	}
}

// connect returns a connection that ends for good with ctx, in the middle of whatever it is used for, before anybody else knows.
func (c *chaos) connect(ctx context.Context) (jetstream.JetStream, context.Context) {
	for ctx.Err() == nil {
		nc, err := nats.Connect(c.broker.url(), nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0))
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		later, end := context.WithCancel(context.WithoutCancel(ctx))
		context.AfterFunc(ctx, func() {
			if rand.N(4) > 0 { // a process that is killed, and otherwise one that stops
				nc.Close()
			}
			end()
			time.AfterFunc(time.Second, nc.Close)
		})
		js, err := jetstream.New(nc)
		if err != nil {
			c.t.Error(err)
		}
		return js, later
	}
	return nil, ctx
}

func (c *chaos) relay(ctx context.Context) {
	js, ctx := c.connect(ctx)
	if js == nil {
		return
	}
	publisher := idemnats.NewPublisher(js, idemnats.PublisherConfig{Timeout: time.Second})
	forgetful := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		err := publisher.Publish(ctx, messages)
		if err == nil && rand.N(10) == 0 {
			return errors.New("nobody knows that they are published")
		}
		return err
	})
	relay := outbox.NewRelay(c.way, forgetful, outbox.RelayConfig{Logger: quiet, BatchSize: 200, Poll: 50 * time.Millisecond, Drain: time.Millisecond, OnDead: func(d outbox.DeadLetter) {
		c.t.Errorf("the relay has given up a message: %+v", d)
	}})
	if err := relay.Run(ctx); err != nil {
		c.t.Error(err)
	}
}

func (c *chaos) consume(ctx context.Context, config idemnats.ConsumerConfig) {
	js, ctx := c.connect(ctx)
	if js == nil {
		return
	}
	source, err := js.Consumer(ctx, "ORDERS", "billing")
	if err != nil {
		js.Conn().Close()
		return
	}
	consumer, err := idemnats.NewConsumer(c.way, "billing", source, func(tx pgx.Tx, m inbox.Message, msg jetstream.Msg) error {
		if err := c.enter(tx, m, msg); err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscanf(string(m.Payload), "%d", &n); err != nil || n%poisonEvery == poisonEvery-1 || rand.N(100) == 0 {
			return errPoison
		}
		return nil
	}, config)
	if err != nil {
		c.t.Error(err)
		return
	}
	_ = consumer.Run(ctx) // its connection is closed under it
}

// breakThings does so until ctx ends.
func (c *chaos) breakThings(ctx context.Context) {
	for {
		select {
		case <-time.After(100*time.Millisecond + rand.N(max(400*time.Millisecond, *chaosDuring/40))):
		case <-ctx.Done():
			return
		}
		switch rand.N(5) {
		case 0:
			c.faults["broker restarted"]++
			c.broker.stop()
			c.broker.start()
		case 1:
			c.faults["connections to the database cut"]++
			c.proxy.Cut(pgproxy.Reset)
		default:
			c.faults["consumer or relay killed"]++
			select {
			case c.kill <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}
}

func (c *chaos) waitFor(ctx context.Context, condition string) {
	for done := false; !done; time.Sleep(20 * time.Millisecond) {
		if err := c.pool.QueryRow(ctx, condition).Scan(&done); err != nil {
			c.t.Errorf("it does not come to an end: %v", err)
			return
		}
	}
}

func (c *chaos) audit(dead int, ordered bool) {
	count := func(sql string) (n int) {
		if err := c.pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
			c.t.Error(err)
		}
		return n
	}
	lines, distinct := count(`SELECT count(*) FROM ledger`), count(`SELECT count(DISTINCT payload) FROM ledger`)
	lost := *chaosMessages - dead - distinct
	inversions := count(`SELECT count(*) FROM (SELECT payload < max(payload) OVER (PARTITION BY key ORDER BY line) AS late FROM ledger) AS l WHERE late`)
	c.t.Logf("%d messages, %d dead letters, %v: %d lost, %d doubled, %d inversions", *chaosMessages, dead, c.faults, lost, lines-distinct, inversions)
	if lost != 0 || lines != distinct || ordered && inversions != 0 {
		c.t.Errorf("%d lost, %d doubled, %d inversions", lost, lines-distinct, inversions)
	}
	if n := count(`SELECT count(*) FROM ledger WHERE payload LIKE 'never%'`); n != 0 {
		c.t.Errorf("%d messages were published and never committed", n)
	}
	if n := count(`SELECT count(*) FROM idem.dead_letters`); n != dead {
		c.t.Errorf("%d dead letters, want %d", n, dead)
	}
}
