package out

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Plain saves an order without a message.
func Plain() Contestant {
	return Contestant{
		Name: "plain transaction", Silent: true,
		Open: func(place Place) (Runner, error) { return plain{place}, nil },
	}
}

type plain struct{ place Place }

func (p plain) Place(ctx context.Context, order Order) error {
	return pgx.BeginFunc(ctx, p.place.Pool, func(tx pgx.Tx) error { return save(ctx, tx, order) })
}
