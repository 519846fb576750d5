package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Plain reserves the order in one transaction, calls the bank, and confirms the order in another
// transaction. It records no progress, so an order of a dead process stays reserved and perhaps
// charged. Plain is the base with which all other contestants are compared.
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
