package out

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Watermill is Watermill's SQL publisher in the transaction, decorated by its Forwarder, as in its
// documentation of the outbox pattern. A Forwarder publishes what the SQL subscriber reads, with
// the default schema for PostgreSQL.
//
// The subscriber reads in the order of transaction ids. A transaction gets its id at its first
// write, here the INSERT of the order, before it locks the row of the customer. Differences from
// the defaults: the subscriber polls every 10 ms instead of every second, and reads 1,000 messages
// at a time instead of 100. The documentation says GuaranteedOrder and ExactlyOnceDelivery: yes.
var Watermill = Contestant{
	Name: "Watermill SQL, Forwarder", Relays: true,
	Prepare: func(ctx context.Context, dsn string) error {
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return err
		}
		defer pool.Close()
		subscriber, err := newSubscriber(pool)
		if err != nil {
			return err
		}
		return subscriber.SubscribeInitialize(forwarded)
	},
	Open: func(place Place) (Runner, error) { return forwarding{place}, nil },
}

// forwarded is the topic between the publisher and the Forwarder.
const forwarded = "outbox"

func newSubscriber(pool *pgxpool.Pool) (*wsql.Subscriber, error) {
	return wsql.NewSubscriber(wsql.BeginnerFromPgx(pool), wsql.SubscriberConfig{
		SchemaAdapter: wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 1000}, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval: 10 * time.Millisecond,
	}, watermill.NopLogger{})
}

type forwarding struct{ place Place }

func (f forwarding) Place(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, f.place.Pool, func(tx pgx.Tx) error {
		if err := save(ctx, tx, order); err != nil {
			return err
		}
		return publish(ctx, tx, order)
	})
}

// publish adds the message of an order in tx.
func publish(ctx context.Context, tx pgx.Tx, order Order) error {
	inTx, err := wsql.NewPublisher(wsql.TxFromPgx(tx), wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	m := message.NewMessageWithContext(ctx, order.ID, order.payload())
	m.Metadata.Set("key", keyOf(order))
	return forwarder.NewPublisher(inTx, forwarder.PublisherConfig{ForwarderTopic: forwarded}).Publish(topic, m)
}

func (f forwarding) Relay(ctx context.Context) error {
	subscriber, err := newSubscriber(f.place.Pool)
	if err != nil {
		return err
	}
	forward, err := forwarder.NewForwarder(subscriber, sinkPublisher{f.place.Sink}, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarded})
	if err != nil {
		return err
	}
	defer subscriber.Close()
	return forward.Run(ctx)
}

// sinkPublisher is the broker as a Watermill publisher.
type sinkPublisher struct{ sink Sink }

func (p sinkPublisher) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := p.sink.Publish(m.Context(), m.UUID); err != nil {
			return err
		}
	}
	return nil
}

func (sinkPublisher) Close() error { return nil }
