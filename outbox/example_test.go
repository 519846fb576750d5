package outbox_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/outbox"
)

func ExampleAdd() {
	var ctx context.Context
	var pool *pgxpool.Pool
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE orders SET state = 'placed' WHERE id = $1`, 17); err != nil { // locks the row of the key
			return err
		}
		return outbox.Add(ctx, tx, outbox.Message{Topic: "orders", Key: "17", Type: "OrderPlaced", Payload: []byte(`{"id": 17}`)})
	})
	fmt.Println(err)
}

func ExampleNewRelay() {
	var ctx context.Context
	var pool *pgxpool.Pool
	publisher := outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
		failed := map[string]error{}
		for _, m := range messages {
			if len(m.Payload) == 0 { // this broker refuses empty payloads
				failed[m.ID] = errors.New("a message without a payload")
				continue
			}
			fmt.Println(m.ID, m.Topic, m.Type) // the broker
		}
		if len(failed) > 0 {
			return &outbox.PublishError{Failed: failed}
		}
		return nil
	})
	relay := outbox.NewRelay(pool, publisher, outbox.RelayConfig{
		OnDead: func(d outbox.DeadLetter) { fmt.Println("a person has to see to", d.Topic, d.ID, d.Reason) },
	})
	go relay.Run(ctx) // in every process
}
