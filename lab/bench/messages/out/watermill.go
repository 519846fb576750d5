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

// Watermill uses the library Watermill as its documentation of the outbox pattern says. In the
// transaction of the order, Watermill's SQL publisher, wrapped by a forwarder publisher, inserts
// the message into a table. A Forwarder reads the table through the SQL subscriber and publishes
// the messages. The tables have the default schema for PostgreSQL.
//
// The subscriber reads messages in the order of transaction ids. A transaction gets its id at its
// first write, here the INSERT of the order, before it locks the customer's row. If two
// transactions save orders of one customer, the messages can therefore be published in another
// sequence than the commits, although the documentation promises GuaranteedOrder (and
// ExactlyOnceDelivery).
//
// Two settings differ from the defaults. The subscriber polls every 10 ms instead of every second,
// and reads 1,000 messages at a time instead of 100.
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

// forwarded is the internal topic from which the Forwarder reads the messages.
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

// publish inserts the message about an order in the transaction tx. A Forwarder publishes it later.
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

// sinkPublisher adapts the broker to Watermill's Publisher interface.
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
