package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// books is everything that an order touches, summed up; or the difference between two such sums.
type books struct {
	Orders, Units, Cents int // ordered
	Entries, Booked      int // in the ledger, and their cents
	Stock                int
	Completed, Rejected  int // records of idem
	Apart                int // orders, entries and records that were not written, all three, by one transaction
}

// booksSQL tells by xmin which transaction has written a row.
const booksSQL = `
SELECT (SELECT count(*) FROM orders),
       (SELECT coalesce(sum(quantity), 0) FROM orders),
       (SELECT coalesce(sum(amount_cents), 0)::bigint FROM orders),
       (SELECT count(*) FROM ledger),
       (SELECT coalesce(sum(amount_cents), 0)::bigint FROM ledger),
       (SELECT coalesce(sum(quantity), 0) FROM stock),
       (SELECT count(*) FROM idem.records WHERE state = 'completed'),
       (SELECT count(*) FROM idem.records WHERE state = 'failed'),
       (SELECT count(*)
        FROM orders o
        FULL JOIN ledger l ON l.order_id = o.id
        FULL JOIN (SELECT operation_id, xmin FROM idem.records WHERE state = 'completed') r USING (operation_id)
        WHERE (o.xmin = l.xmin AND l.xmin = r.xmin) IS NOT TRUE)`

func (s *stage) readBooks(ctx context.Context) (books, error) {
	rows, _ := s.pool.Query(ctx, booksSQL)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[books])
}

func (b books) since(before books) books {
	return books{
		Orders: b.Orders - before.Orders, Units: b.Units - before.Units, Cents: b.Cents - before.Cents,
		Entries: b.Entries - before.Entries, Booked: b.Booked - before.Booked,
		Stock:     b.Stock - before.Stock,
		Completed: b.Completed - before.Completed, Rejected: b.Rejected - before.Rejected,
		Apart: b.Apart - before.Apart,
	}
}

// balance returns an error unless a change of the books is what whole orders leave, and nothing else.
func (b books) balance() error {
	var errs []error
	check := func(what string, got, want int) {
		if got != want {
			errs = append(errs, fmt.Errorf("the books do not balance: %s: %d, want %d", what, got, want))
		}
	}
	check("entries in the ledger", b.Entries, b.Orders)
	check("cents in the ledger", b.Booked, b.Cents)
	check("units gone from the stock", -b.Stock, b.Units)
	check("completed records", b.Completed, b.Orders)
	check("orders, entries and records not written by one transaction", b.Apart, 0)
	return errors.Join(errs...)
}

func (b books) String() string {
	return fmt.Sprintf("%d orders, %d entries in the ledger over %d.%02d EUR, %d units gone from the stock, %d records (%d of them a final no)",
		b.Orders, b.Entries, b.Booked/100, b.Booked%100, -b.Stock, b.Completed+b.Rejected, b.Rejected)
}
