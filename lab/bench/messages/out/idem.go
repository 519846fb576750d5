package out

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// Idem is package outbox: Add in the transaction, and a Relay in the process. The contestant wakes
// the Relay after the commit, as the documentation recommends.
func Idem() Contestant {
	return Contestant{
		Name: "idem outbox", Relays: true,
		Prepare: schema.UpAt,
		Open:    func(place Place) (Runner, error) { return newIdem(place), nil },
	}
}

// IdemPiped is Idem with Queue, in one batch with the statements of the business.
func IdemPiped() Contestant {
	c := Idem()
	c.Name, c.Piped = "idem outbox, in a batch", true
	c.Open = func(place Place) (Runner, error) { return idemPiped{newIdem(place)}, nil }
	return c
}

type idem struct {
	place Place
	relay *outbox.Relay
}

func newIdem(place Place) *idem {
	return &idem{place, outbox.NewRelay(place.Pool, publisher{place.Sink}, outbox.RelayConfig{Logger: quiet})}
}

func (i *idem) Place(ctx context.Context, order Order) error {
	err := pgx.BeginFunc(ctx, i.place.Pool, func(tx pgx.Tx) error {
		if err := save(ctx, tx, order); err != nil {
			return err
		}
		return outbox.Add(ctx, tx, messageOf(order))
	})
	if err == nil {
		i.relay.Wake()
	}
	return err
}

type idemPiped struct{ *idem }

func (i idemPiped) Place(ctx context.Context, order Order) error {
	err := pgx.BeginFunc(ctx, i.place.Pool, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		queue(batch, order)
		if err := outbox.Queue(batch, messageOf(order)); err != nil {
			return err
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err == nil {
		i.relay.Wake()
	}
	return err
}

func (i *idem) Stock(ctx context.Context, orders []Order) error {
	messages := make([]outbox.Message, len(orders))
	for n, order := range orders {
		messages[n] = messageOf(order)
	}
	return pgx.BeginFunc(ctx, i.place.Pool, func(tx pgx.Tx) error { return outbox.Add(ctx, tx, messages...) })
}

func (i *idem) Relay(ctx context.Context) error { return i.relay.Run(ctx) }

func messageOf(order Order) outbox.Message {
	return outbox.Message{ID: order.ID, Topic: topic, Key: keyOf(order), Type: "OrderPlaced", Payload: order.payload()}
}

// publisher is the broker as an outbox.Publisher.
type publisher struct{ sink Sink }

func (p publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return p.sink.Publish(ctx, ids...)
}

// KeepsOrder says that a call stores all of its messages in order, or none.
func (publisher) KeepsOrder() bool { return true }
