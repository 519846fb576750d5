package idemwatermill_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/adapter/idemwatermill"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgtest"
)

// roles are the kinds of work of the processes that are killed.
var roles = map[string]func(context.Context, *ledger.Child) error{"relay": relay, "consumer": consume}

func relay(ctx context.Context, child *ledger.Child) error {
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client(child.Broker)}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return child.Relay(ctx, idemwatermill.NewPublisher(publisher, idemwatermill.PublisherConfig{}))
}

func consume(ctx context.Context, child *ledger.Child) error {
	ledger.Ready()
	handle := func(tx pgx.Tx, _ *message.Message) error { return ledger.Handle(tx) }
	config := idemwatermill.HandlerConfig{Logger: child.Logger, Options: []inbox.Option{ledger.Quick}}
	for { // Run returns if it cannot subscribe
		router, err := newRouter(child.Broker, child.Topic, idemwatermill.Handler(child.Pool, "books", handle, config))
		if err == nil {
			_ = router.Run(ctx)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// It is not parallel, because it restarts the broker that all tests share. A Redis consumer group
// has no order: messages of a consumer that died come after MaxIdleTime, behind later ones.
func TestChaos(t *testing.T) {
	pgtest.Long(t)
	s := broker(t)
	topic, proxy := uuid.NewString(), ledger.Proxy(t, s.address())
	chaos := ledger.Chaos{
		DSN: pgtest.DSN(t), Topic: topic, Address: proxy.Addr(), Broker: proxy, Unordered: true,
		Restart: func() error { return s.restart(t.Context()) },
		Idle:    func() (bool, error) { return unacknowledged(t, s, topic) == 0, nil },
	}
	chaos.Run(t)
}
