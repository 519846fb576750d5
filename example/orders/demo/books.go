package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// books are sums over everything that an order changes, or the difference between two such sums.
type books struct {
	Orders, Units, Cents int // number of orders, and the sums of their units and cents
	LastOrder            int // the highest order id
	Paid, PaidCents      int // number of orders that were paid by card, and the sum of their cents
	Entries, Booked      int // number of ledger entries, and the sum of their cents
	Stock                int
	Completed, Rejected  int // number of idem's records in each of these states
	InProgress           int // operations in progress
	// Apart counts the orders that were not written in one transaction with their ledger entry and
	// their record, and the ledger entries and completed records without an order.
	Apart            int
	Charges, Charged int // number of charges in the bank's ledger, and the sum of their cents
	Unpaired         int // charges that do not belong to exactly one order of the same amount
}

// booksSQL computes the books. It compares xmin, the id of the transaction that wrote a row, to
// check that an order, its ledger entry and its record were committed together. The parameters are
// the ids and amounts of the bank's charges.
const booksSQL = `
SELECT (SELECT count(*) FROM orders),
       (SELECT coalesce(sum(quantity), 0) FROM orders),
       (SELECT coalesce(sum(amount_cents), 0)::bigint FROM orders),
       (SELECT coalesce(max(id), 0) FROM orders),
       (SELECT count(*) FROM orders WHERE charge_id <> ''),
       (SELECT coalesce(sum(amount_cents), 0)::bigint FROM orders WHERE charge_id <> ''),
       (SELECT count(*) FROM ledger),
       (SELECT coalesce(sum(amount_cents), 0)::bigint FROM ledger),
       (SELECT coalesce(sum(quantity), 0) FROM stock),
       (SELECT count(*) FROM idem.records WHERE state = 'completed'),
       (SELECT count(*) FROM idem.records WHERE state = 'failed'),
       (SELECT count(*) FROM idem.operations WHERE ended_at IS NULL),
       (SELECT count(*)
        FROM orders o
        FULL JOIN ledger l ON l.order_id = o.id
        FULL JOIN (SELECT execution_id, xmin FROM idem.records WHERE state = 'completed') r USING (execution_id)
        WHERE (o.xmin = l.xmin AND l.xmin = r.xmin) IS NOT TRUE),
       (SELECT count(*) FROM unnest($1::text[])),
       (SELECT coalesce(sum(cents), 0)::bigint FROM unnest($2::bigint[]) AS cents),
       (SELECT count(*)
        FROM unnest($1::text[], $2::bigint[]) AS charge (id, cents)
        WHERE (SELECT count(*) FROM orders WHERE charge_id = charge.id AND amount_cents = cents) <> 1)`

// readBooks reads the database of the shop and the ledger of the bank.
func (s *stage) readBooks(ctx context.Context) (books, error) {
	entries, err := s.charges(ctx)
	if err != nil {
		return books{}, err
	}
	ids, cents := []string{}, []int64{}
	for _, e := range entries {
		if !e.Declined {
			ids, cents = append(ids, e.ID), append(cents, e.AmountCents)
		}
	}
	rows, _ := s.pool.Query(ctx, booksSQL, ids, cents)
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[books])
}

// since returns b minus before, the books at an earlier time.
func (b books) since(before books) books {
	return books{
		Orders: b.Orders - before.Orders, Units: b.Units - before.Units, Cents: b.Cents - before.Cents,
		Paid: b.Paid - before.Paid, PaidCents: b.PaidCents - before.PaidCents,
		Entries: b.Entries - before.Entries, Booked: b.Booked - before.Booked,
		Stock:     b.Stock - before.Stock,
		Completed: b.Completed - before.Completed, Rejected: b.Rejected - before.Rejected,
		InProgress: b.InProgress - before.InProgress,
		Apart:      b.Apart - before.Apart,
		Charges:    b.Charges - before.Charges, Charged: b.Charged - before.Charged,
		Unpaired: b.Unpaired - before.Unpaired,
	}
}

// balance returns an error unless b, a difference of two books, consists of complete orders. A
// complete order has a ledger entry, a record and units taken from the stock, and a charge if it
// was paid by card.
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
	check("operations that have not ended", b.InProgress, 0)
	check("orders, entries and records not written by one transaction", b.Apart, 0)
	check("charges at the bank", b.Charges, b.Paid)
	check("cents at the bank", b.Charged, b.PaidCents)
	check("charges that do not belong to exactly one order", b.Unpaired, 0)
	return errors.Join(errs...)
}

func (b books) String() string {
	return fmt.Sprintf("%d orders, %d entries in the ledger over %d.%02d EUR, %d units gone from the stock, %d records (%d of them final refusals)\n"+
		"the books of the bank: %d charges over %d.%02d EUR, each for one of the %d orders that were paid by card",
		b.Orders, b.Entries, b.Booked/100, b.Booked%100, -b.Stock, b.Completed+b.Rejected, b.Rejected,
		b.Charges, b.Charged/100, b.Charged%100, b.Paid)
}
