package calls

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/bench/result"
)

// effects contains the numbers of rows that the calls have written.
type effects struct {
	Orders, Distinct    int // the number of orders, and of distinct keys in the orders
	Lines, Ledger, Sold int
}

func count(ctx context.Context, pool *pgxpool.Pool) (e effects, err error) {
	err = pool.QueryRow(ctx, `select (select count(*) from orders), (select count(distinct op) from orders), (select count(*) from order_lines),
		(select count(*) from ledger), (select sum(1000000000 - on_hand) from stock)::bigint`).Scan(&e.Orders, &e.Distinct, &e.Lines, &e.Ledger, &e.Sold)
	return e, err
}

// verify returns a function for runner.Seat.Finish. The function fails if the effects in the
// database do not match the requests that keys has generated.
func (b *booth) verify(keys *source, realistic bool) func(context.Context) (result.Values, error) {
	return func(ctx context.Context) (result.Values, error) {
		found, err := count(ctx, b.pool)
		if err != nil {
			return nil, err
		}
		return nil, found.check(keys.made(), realistic, b.Repeats)
	}
}

// check returns an error if the effects do not match the number of distinct requests. If repeats is
// true, a request may have been executed more than once.
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
