package arena

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Effects is what the business has left in a database.
type Effects struct {
	Orders, Distinct    int // and how many different operations they are of
	Lines, Ledger, Sold int
}

// Count counts the effects since the last Clear.
func Count(ctx context.Context, pool *pgxpool.Pool) (e Effects, err error) {
	err = pool.QueryRow(ctx, `select (select count(*) from orders), (select count(distinct op) from orders), (select count(*) from order_lines),
		(select count(*) from ledger), (select sum(1000000000 - on_hand) from stock)::bigint`).Scan(&e.Orders, &e.Distinct, &e.Lines, &e.Ledger, &e.Sold)
	return e, err
}

// Clear removes all effects.
func Clear(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `truncate orders, order_lines, ledger, stock; insert into stock select sku, 1000000000 from generate_series(0, 999) sku`)
	return err
}

// Check compares the effects with what was asked for: some different requests, of a business that is realistic or not, by
// a contestant that executes duplicates again or that must not. It catches one that does nothing, too.
func (e Effects) Check(requests int, realistic, repeats bool) error {
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
