package main

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// books shows a tenant the latest of its transactions: the order that each of them placed, and the record of its key. A
// record is for the eyes of operators, as a rule. This one gives away neither the key nor the stored response.
type books struct {
	pool        *pgxpool.Pool
	credentials credentials
}

// entry is a transaction. One that was refused for good has no order.
type entry struct {
	Order  *bookedOrder  `json:"order"`
	Record *bookedRecord `json:"record"`
}

type bookedOrder struct {
	ID          int64  `json:"id"`
	SKU         string `json:"sku"`
	Quantity    int32  `json:"quantity"`
	AmountCents int64  `json:"amount_cents"`
	Shipped     string `json:"shipped"` // in which parcel, once fulfilment has told
	Xmin        string `json:"xmin"`    // the transaction that wrote the row
}

type bookedRecord struct {
	Key    string `json:"key"` // abridged, as in errors and logs
	State  string `json:"state"`
	Status int32  `json:"status"`
	Xmin   string `json:"xmin"`
}

// entriesSQL reads orders and records in one snapshot. What joins them is the ledger.
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

func (b *books) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tenant, err := b.credentials.tenant(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	entries, err := b.latest(r.Context(), tenant)
	if err != nil {
		refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, entries)
}

func (b *books) latest(ctx context.Context, tenant string) ([]entry, error) {
	rows, _ := b.pool.Query(ctx, entriesSQL, tenant, scopeOf(tenant))
	return pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
}
