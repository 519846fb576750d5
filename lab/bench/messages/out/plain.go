package out

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Plain saves an order without a message.
var Plain = Contestant{
	Name: "plain transaction", Silent: true,
	Open: func(place Place) (Runner, error) { return plain{place}, nil },
}

type plain struct{ place Place }

func (p plain) Place(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, p.place.Pool, func(tx pgx.Tx) error { return save(ctx, tx, order) })
}

// Naive commits and then publishes. Many people write this first. A process that dies in between
// publishes nothing.
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
