package calls

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/result"
)

// effects counts the rows that the business has written.
type effects struct {
	Orders, Distinct    int // orders, and distinct keys among them
	Lines, Ledger, Sold int
}

func count(ctx context.Context, pool *pgxpool.Pool) (e effects, err error) {
	err = pool.QueryRow(ctx, `select (select count(*) from orders), (select count(distinct op) from orders), (select count(*) from order_lines),
		(select count(*) from ledger), (select sum(1000000000 - on_hand) from stock)::bigint`).Scan(&e.Orders, &e.Distinct, &e.Lines, &e.Ledger, &e.Sold)
	return e, err
}

// verify returns a Finish that compares the effects with the requests.
func (b *booth) verify(keys *source, realistic bool) func(context.Context) (result.Values, error) {
	return func(ctx context.Context) (result.Values, error) {
		found, err := count(ctx, b.pool)
		if err != nil {
			return nil, err
		}
		return nil, found.check(keys.made(), realistic, b.Repeats)
	}
}

// check returns an error if the effects do not match the number of distinct requests. repeats
// allows duplicates to be executed again.
func (e effects) check(requests int, realistic, repeats bool) error {
	switch {
	case e.Distinct != requests:
		return fmt.Errorf("%d of %d requests were executed", e.Distinct, requests)
	case e.Orders != e.Distinct && !repeats:
		return fmt.Errorf("%d requests were executed %d times", e.Distinct, e.Orders)
	case realistic && (e.Lines != 2*e.Orders || e.Ledger != e.Orders || e.Sold != e.Orders):
		return fmt.Errorf("%d orders have %d lines, %d entries in the ledger and %d units sold", e.Orders, e.Lines, e.Ledger, e.Sold)
	}
	return nil
}
