package idemwatermill_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
)

var eventually = waiting.Until

// newMessage returns a message with a random ID.
func newMessage(topic, key, body string) outbox.Message {
	return outbox.Message{ID: uuid.NewString(), Topic: topic, Key: key, Type: "Said", Payload: []byte(body)}
}

func client(addr string) redis.UniversalClient {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: 5 * time.Second, ReadTimeout: time.Second})
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

// newRouter returns a router that handles a topic as a consumer group.
func newRouter(addr, topic string, handler message.NoPublishHandlerFunc) (*message.Router, error) {
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client(addr), ConsumerGroup: "books", DisableIndefiniteInitialBlock: true,
		ClaimInterval: 200 * time.Millisecond, MaxIdleTime: time.Second, // until a dead consumer loses its messages
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

// quick returns a config with a short backoff that logs to the test.
func quick(t testing.TB, options ...inbox.Option) idemwatermill.HandlerConfig {
	return idemwatermill.HandlerConfig{
		Options: append(options, inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond)), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// unacknowledged returns how many messages are delivered and not acknowledged, or not delivered
// yet.
func unacknowledged(t testing.TB, s *server, topic string) int64 {
	t.Helper()
	groups, err := client(s.address()).XInfoGroups(context.Background(), topic).Result()
	if err != nil {
		t.Fatal(err)
	}
	return groups[0].Pending + groups[0].Lag
}
