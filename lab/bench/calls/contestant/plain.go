package contestant

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Plain is a transaction with only the statements of the business. A repeated request is executed
// again. Plain is the base of all first runs.
func Plain() Contestant {
	return Contestant{
		Name: NamePlain, Repeats: true, Recordless: true,
		Open: func(_ context.Context, place Place) (Runner, error) {
			return plain{pooled{place.Pool}}, nil
		},
	}
}

type plain struct{ pooled }

func (p plain) Do(ctx context.Context, call Call) (Answer, error) {
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error { return call.Execute(ctx, tx) })
	return Answer{Body: call.Body}, err
}
