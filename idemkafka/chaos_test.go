package idemkafka_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/idemkafka"
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
	newChaos(t).run(2)
}

// chaos is an outbox, its relay, brokers and consumers, all of which are broken again and again while messages pass.
type chaos struct {
	*ledger
	*cluster
	t      *testing.T
	proxy  *pgproxy.Proxy
	way    *pgxpool.Pool // to the database, by the proxy
	kill   chan struct{} // takes one consumer or relay
	faults map[string]int
}

func newChaos(t *testing.T) *chaos {
	dsn := pgtest.DSN(t)
	c := &chaos{
		ledger: &ledger{t: t, pool: pgtest.Open(t, dsn)}, cluster: newCluster(t, 8, kfake.GroupMinSessionTimeout(time.Second)), t: t, proxy: pgtest.Proxy(t, dsn),
		kill: make(chan struct{}), faults: map[string]int{},
	}
	c.way = pgtest.Open(t, c.proxy.DSN(), func(config *pgxpool.Config) { config.MaxConns = 10 })
	c.exec(`CREATE TABLE ledger (line bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, payload text NOT NULL)`)
	return c
}

func (c *chaos) run(consumers int) {
	ctx, stop := context.WithTimeout(c.t.Context(), 10*limit+10**chaosDuring)
	var all sync.WaitGroup
	defer func() { stop(); all.Wait() }()
	for range consumers {
		all.Go(func() { c.again(ctx, c.consume) })
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
	c.audit(dead)
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
	err := pgx.BeginFunc(ctx, c.ledger.pool, func(tx pgx.Tx) error {
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

// again runs f again and again until ctx ends. What comes by c.kill ends one run, and nobody waits for it.
func (c *chaos) again(ctx context.Context, f func(context.Context)) {
	var killed sync.WaitGroup
	defer killed.Wait()
	for ctx.Err() == nil {
		one, end := context.WithCancel(ctx)
		done := make(chan struct{})
		killed.Go(func() { defer close(done); f(one) })
		select {
		case <-c.kill:
		case <-done:
			time.Sleep(5 * time.Millisecond)
		case <-ctx.Done():
		}
		end()
	}
}

func (c *chaos) relay(ctx context.Context) {
	client, err := kgo.NewClient(c.opts()...)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer client.Close()
	publisher, err := idemkafka.NewPublisher(client, idemkafka.PublisherConfig{Timeout: 2 * time.Second})
	if err != nil {
		c.t.Error(err)
		return
	}
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

func (c *chaos) consume(ctx context.Context) {
	mute := kgo.Dialer((&dialer{ctx: ctx}).dial)
	config := idemkafka.ConsumerConfig{Logger: quiet, Options: []inbox.Option{inbox.WithMaxAttempts(8), inbox.WithPause(5*time.Millisecond, 20*time.Millisecond)}}
	opts := c.opts(mute, kgo.ConsumeTopics(c.topic), kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(100*time.Millisecond))
	consumer, err := idemkafka.NewConsumer(c.way, c.group, func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error {
		if err := c.enter(tx, m, record); err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscanf(string(m.Payload), "%d", &n); err != nil || n%poisonEvery == poisonEvery-1 || rand.N(100) == 0 {
			return errPoison
		}
		return nil
	}, config, opts...)
	if err != nil {
		c.t.Error(err)
		return
	}
	if err := consumer.Run(ctx); err != nil {
		c.t.Error(err)
	}
}

// dialer gives a consumer connections that are cut when it is killed, so that it can neither commit nor leave its group.
type dialer struct {
	ctx context.Context
	net.Dialer
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if d.ctx.Err() != nil {
		return nil, errors.New("killed")
	}
	conn, err := d.DialContext(ctx, network, address)
	if err == nil {
		context.AfterFunc(d.ctx, func() { conn.Close() })
	}
	return conn, err
}

// breakThings does so until ctx ends.
func (c *chaos) breakThings(ctx context.Context) {
	for {
		select {
		case <-time.After(100*time.Millisecond + rand.N(max(400*time.Millisecond, *chaosDuring/40))):
		case <-ctx.Done():
			return
		}
		switch rand.N(6) {
		case 0:
			c.faults["leaders moved"]++
			c.fake.ShufflePartitionLeaders()
		case 1:
			c.faults["coordinators moved"]++
			c.fake.RehashCoordinators()
		case 2:
			c.faults["answers lost or refused"]++
			c.fake.Fault(
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 3},
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 3},
				kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.CoordinatorNotAvailable, Count: 3},
				kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: 3},
			)
		case 3:
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
		if err := c.ledger.pool.QueryRow(ctx, condition).Scan(&done); err != nil {
			c.t.Errorf("it does not come to an end: %v", err)
			return
		}
	}
}

func (c *chaos) audit(dead int) {
	count := func(sql string) (n int) {
		if err := c.ledger.pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
			c.t.Error(err)
		}
		return n
	}
	lines, distinct := count(`SELECT count(*) FROM ledger`), count(`SELECT count(DISTINCT payload) FROM ledger`)
	lost := *chaosMessages - dead - distinct
	inversions := count(`SELECT count(*) FROM (SELECT payload < max(payload) OVER (PARTITION BY key ORDER BY line) AS late FROM ledger) AS l WHERE late`)
	c.t.Logf("%d messages, %d dead letters, %v: %d lost, %d doubled, %d inversions", *chaosMessages, dead, c.faults, lost, lines-distinct, inversions)
	if lost != 0 || lines != distinct || inversions != 0 {
		c.t.Errorf("%d lost, %d doubled, %d inversions", lost, lines-distinct, inversions)
	}
	if n := count(`SELECT count(*) FROM ledger WHERE payload LIKE 'never%'`); n != 0 {
		c.t.Errorf("%d messages were published and never committed", n)
	}
	if n := count(`SELECT count(*) FROM idem.dead_letters`); n != dead {
		c.t.Errorf("%d dead letters, want %d", n, dead)
	}
}
