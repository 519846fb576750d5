package main

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// entry is the effect of one request: the order, and the record of the idempotency key. A rejected
// request has a record and no order.
type entry struct {
	Order  *bookedOrder  `json:"order"`
	Record *bookedRecord `json:"record"`
}

type bookedOrder struct {
	ID          int64  `json:"id"`
	SKU         string `json:"sku"`
	Quantity    int32  `json:"quantity"`
	AmountCents int64  `json:"amount_cents"`
	Shipped     string `json:"shipped"` // the parcel; empty until fulfilment reports it
	Xmin        string `json:"xmin"`    // id of the transaction that wrote the row
}

type bookedRecord struct {
	Key    string `json:"key"` // shortened, as in errors and logs
	State  string `json:"state"`
	Status int32  `json:"status"`
	Xmin   string `json:"xmin"`
}

// entriesSQL reads orders and records in one snapshot. The ledger connects orders with records: a
// ledger entry has the id of the order and the execution id of the record. The full join also
// returns records of rejected orders.
const entriesSQL = `
SELECT CASE WHEN o.id IS NOT NULL THEN json_build_object(
           'id', o.id, 'sku', o.sku, 'quantity', o.quantity, 'amount_cents', o.amount_cents,
           'shipped', (SELECT coalesce(string_agg(parcel, ', '), '') FROM shipped WHERE order_id = o.id), 'xmin', o.xmin::text) END,
       CASE WHEN r.key IS NOT NULL THEN json_build_object(
           'key', left(r.key, greatest(1, least(4, length(r.key) / 2))) || '…(' || octet_length(r.key) || ')',
           'state', r.state, 'status', r.status, 'xmin', r.xmin::text) END
FROM (SELECT orders.*, orders.xmin, execution_id
      FROM orders LEFT JOIN ledger ON order_id = orders.id WHERE orders.tenant = $1) o
FULL JOIN (SELECT *, xmin FROM idem.records WHERE scope = $2) r USING (execution_id)
ORDER BY coalesce(r.created_at, o.created_at) DESC
LIMIT 12`

// latestEntries returns the latest requests of a tenant: the order that each of them placed, and
// the record of its idempotency key. Records are usually for operators only. An entry may be shown
// to the tenant, because it reveals neither the full key nor the stored response.
func latestEntries(ctx context.Context, pool *pgxpool.Pool, tenant string) ([]entry, error) {
	rows, _ := pool.Query(ctx, entriesSQL, tenant, scopeOf(tenant))
	return pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
}
