package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Plain is two transactions around a bare call. Nothing is recorded, so an order of a dead process
// stays reserved and perhaps charged. Plain is the base of all other contestants.
var Plain = Contestant{
	Name: "plain transactions",
	Open: func(_ context.Context, place Place) (Do, error) { return place.plain, nil },
}

func (p Place) plain(ctx context.Context, order string) error {
	err := pgx.BeginFunc(ctx, p.Pool, func(tx pgx.Tx) error { return reserve(ctx, tx, order) })
	if err != nil {
		return err
	}
	charge, err := p.Bank.Charge(ctx, order, keyOf(order))
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, p.Pool, func(tx pgx.Tx) error { return confirm(ctx, tx, order, charge) })
}
