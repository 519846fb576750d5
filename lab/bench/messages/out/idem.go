package out

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// Idem uses package outbox. It calls outbox.Add in the transaction, and an outbox.Relay in the same
// process publishes the messages. Idem wakes the Relay after each commit, as the documentation
// recommends.
var Idem = Contestant{
	Name: "idem outbox", Relays: true, Prepare: schema.UpAt,
	Open: func(place Place) (Runner, error) {
		config := outbox.RelayConfig{Logger: slog.New(slog.DiscardHandler)} // the relay would also log mere slowness
		return &idem{place, outbox.NewRelay(place.Pool, publisher{place.Sink}, config)}, nil
	},
}

type idem struct {
	place Place
	relay *outbox.Relay
}

func (i *idem) Place(ctx context.Context, order Order) error {
	err := pgx.BeginFunc(ctx, i.place.Pool, func(tx pgx.Tx) error {
		if err := save(ctx, tx, order); err != nil {
			return err
		}
		message := outbox.Message{ID: order.ID, Topic: topic, Key: keyOf(order), Type: "OrderPlaced", Payload: order.payload()}
		return outbox.Add(ctx, tx, message)
	})
	if err == nil {
		i.relay.Wake()
	}
	return err
}

func (i *idem) Relay(ctx context.Context) error { return i.relay.Run(ctx) }

// publisher adapts the broker to the interface outbox.Publisher.
type publisher struct{ sink Sink }

func (p publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return p.sink.Publish(ctx, ids...)
}

// KeepsOrder returns true: Publish stores all messages of a call in order, or none of them.
func (publisher) KeepsOrder() bool { return true }
