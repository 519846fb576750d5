package in

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/runner"
)

// WatermillSQL publishes messages to Watermill's own table. Watermill's SQL subscriber handles them
// in the transaction that moves its offset, and the effect joins that transaction with
// TxFromContext, as in Watermill's example of exactly-once delivery.
//
// The subscriber cannot recognize a message that its producer has sent twice. The Deduplicator
// therefore runs in the same transaction. Differences from the defaults: the subscriber polls every
// 10 ms instead of every second, and handles 1,000 messages per transaction instead of 100. The
// documentation says ExactlyOnceDelivery: yes.
func WatermillSQL() Contestant {
	return Contestant{
		Name: "Watermill SQL subscriber, Deduplicator in its transaction",
		Prepare: func(ctx context.Context, dsn string) error {
			pool, err := pgxpool.New(ctx, dsn)
			if err != nil {
				return err
			}
			defer pool.Close()
			subscriber, err := newSQLSubscriber(pool, 0)
			if err != nil {
				return err
			}
			if err := subscriber.SubscribeInitialize(sqlTopic); err != nil {
				return err
			}
			return runner.Execute(ctx, dsn, "create table dedup_keys (key text primary key, at timestamptz not null default now())")
		},
		Consume: consumeSQL,
	}
}

const sqlTopic = "messages"

func newSQLSubscriber(pool *pgxpool.Pool, batch int) (*wsql.Subscriber, error) {
	return wsql.NewSubscriber(wsql.BeginnerFromPgx(pool), wsql.SubscriberConfig{
		SchemaAdapter: wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch}, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval: 10 * time.Millisecond,
	}, watermill.NopLogger{})
}

func consumeSQL(ctx context.Context, place Place) error {
	publisher, err := wsql.NewPublisher(wsql.BeginnerFromPgx(place.Pool), wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	subscriber, err := newSQLSubscriber(place.Pool, place.Batch)
	if err != nil {
		return err
	}
	defer subscriber.Close()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	deduplicator := middleware.Deduplicator{KeyFactory: byUUID, Repository: keysInTx{}, Timeout: time.Minute}
	router.AddConsumerHandler("effects", sqlTopic, subscriber, func(m *message.Message) error {
		tx, err := txOf(m.Context())
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(m.Context(), insertEffect, m.UUID)
		return err
	}).AddMiddleware(deduplicator.Middleware)
	routing := make(chan error, 1)
	go func() { routing <- router.Run(ctx) }()
	<-router.Running()
	taken := intake{
		store: func(ctx context.Context, all []broker.Delivery) error {
			messages := make([]*message.Message, len(all))
			for i, d := range all {
				// The payload column has the type JSON, the default.
				messages[i] = message.NewMessageWithContext(ctx, d.ID, []byte(`"`+string(d.Payload)+`"`))
			}
			return publisher.Publish(sqlTopic, messages...)
		},
		left: `select count(*) from watermill_messages m, watermill_offsets_messages o
			where (m.transaction_id, m."offset") > (o.last_processed_transaction_id, o.offset_acked)`,
	}
	if err := taken.run(ctx, place); err != nil {
		return err
	}
	return errors.Join(router.Close(), <-routing)
}

// keysInTx is a repository of keys that are committed with the effect.
type keysInTx struct{}

func (keysInTx) IsDuplicate(ctx context.Context, key string) (bool, error) {
	tx, err := txOf(ctx)
	if err != nil {
		return false, err
	}
	result, err := tx.ExecContext(ctx, insertKey, key)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 0, err
}

func txOf(ctx context.Context) (wsql.Tx, error) {
	tx, ok := wsql.TxFromContext(ctx)
	if !ok {
		return nil, errors.New("the message has no transaction")
	}
	return tx, nil
}
