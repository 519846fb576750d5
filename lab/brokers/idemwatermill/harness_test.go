package idemwatermill_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
)

// eventually asks until the answer is yes.
var eventually = waiting.Until

// effects has a row for each time that a message took effect. Nothing but the inbox keeps it at one.
const effects = `CREATE TABLE effects (seq bigint GENERATED ALWAYS AS IDENTITY, id text, key text, body text)`

func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.New(t)
	if _, err := pool.Exec(t.Context(), effects); err != nil {
		t.Fatal(err)
	}
	return pool
}

func record(tx pgx.Tx, msg *message.Message) error {
	_, err := tx.Exec(context.Background(), `INSERT INTO effects (id, key, body) VALUES ($1, $2, $3)`,
		msg.UUID, msg.Metadata.Get(idemwatermill.MetadataKey), string(msg.Payload))
	return err
}

func wantEffects(t testing.TB, pool *pgxpool.Pool, want ...string) {
	t.Helper()
	var got []string
	eventually(t, "the effects", func() bool {
		rows, err := pool.Query(context.Background(), `SELECT body FROM effects ORDER BY seq`)
		if err == nil {
			got, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			t.Fatal(err)
		}
		return len(got) >= len(want)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
}

func count(t testing.TB, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// said is a message with an id of its own.
func said(topic, key, body string) outbox.Message {
	return outbox.Message{ID: uuid.NewString(), Topic: topic, Key: key, Type: "Said", Payload: []byte(body)}
}

func client(addr string) redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: 5 * time.Second, ReadTimeout: 2 * time.Second})
}

func publisher(t testing.TB, addr string) *idemwatermill.Publisher {
	t.Helper()
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client(addr)}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return idemwatermill.NewPublisher(p, idemwatermill.PublisherConfig{})
}

func publish(t testing.TB, s *server, messages ...outbox.Message) {
	t.Helper()
	if err := ledger.Publish(t.Context(), publisher(t, s.address()), messages); err != nil {
		t.Fatal(err)
	}
}

// newRouter has a topic handled by a consumer group.
func newRouter(addr, topic string, handler message.NoPublishHandlerFunc) (*message.Router, error) {
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client(addr), ConsumerGroup: "books", DisableIndefiniteInitialBlock: true,
		ClaimInterval: 200 * time.Millisecond, MaxIdleTime: time.Second, // of messages whose consumer is gone
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NopLogger{})
	if err == nil {
		router.AddConsumerHandler("books", topic, subscriber, handler)
	}
	return router, err
}

// run runs a handler until the test is over, or the returned function is called.
func run(t testing.TB, addr, topic string, handler message.NoPublishHandlerFunc) (stop func()) {
	t.Helper()
	router, err := newRouter(addr, topic, handler)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- router.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// quick is a config for tests: short pauses, and a log that goes with the test.
func quick(t testing.TB, options ...inbox.Option) idemwatermill.HandlerConfig {
	return idemwatermill.HandlerConfig{
		Options: append(options, inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond)), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// unacknowledged is how many messages Redis has delivered and waits to hear of, and how many it has yet to deliver.
func unacknowledged(t testing.TB, s *server, topic string) int64 {
	t.Helper()
	groups, err := client(s.address()).XInfoGroups(context.Background(), topic).Result()
	if err != nil {
		t.Fatal(err)
	}
	return groups[0].Pending + groups[0].Lag
}
