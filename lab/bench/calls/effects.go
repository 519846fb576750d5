package calls

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// effects are what the business has left in a database.
type effects struct {
	Orders, Distinct    int // and how many different keys they have
	Lines, Ledger, Sold int
}

func count(ctx context.Context, pool *pgxpool.Pool) (e effects, err error) {
	err = pool.QueryRow(ctx, `select (select count(*) from orders), (select count(distinct op) from orders), (select count(*) from order_lines),
		(select count(*) from ledger), (select sum(1000000000 - on_hand) from stock)::bigint`).Scan(&e.Orders, &e.Distinct, &e.Lines, &e.Ledger, &e.Sold)
	return e, err
}

// check compares the effects with the number of different requests. A contestant that repeats may
// execute a duplicate again.
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
