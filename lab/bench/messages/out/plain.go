package out

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Plain saves an order and publishes no message.
var Plain = Contestant{
	Name: "plain transaction", Silent: true,
	Open: func(place Place) (Runner, error) { return plain{place}, nil },
}

type plain struct{ place Place }

func (p plain) Place(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, p.place.Pool, func(tx pgx.Tx) error { return save(ctx, tx, order) })
}

// Naive commits the order and then publishes the message. Many people write this code first. If the
// process dies between commit and publication, the message is lost.
var Naive = Contestant{
	Name: "commit, then publish",
	Open: func(place Place) (Runner, error) { return naive{plain{place}}, nil },
}

type naive struct{ plain }

func (n naive) Place(ctx context.Context, order Order) error {
	if err := n.plain.Place(ctx, order); err != nil {
		return err
	}
	return n.place.Sink.Publish(ctx, order.ID)
}
