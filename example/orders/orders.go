package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// order is what was placed.
type order struct {
	ID          int64     `json:"id"`
	SKU         string    `json:"sku"`
	Quantity    int32     `json:"quantity"`
	AmountCents int64     `json:"amount_cents"`
	Currency    string    `json:"currency"`
	Note        string    `json:"note,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
}

const orderColumns = `id, sku, quantity, amount_cents, currency, note, created_at`

var errOutOfStock = errors.New("not enough in stock")

// placeOrder writes the order, books it and takes it from the stock. It may run more than once, and all of its writes are
// on tx: those of a run that is not committed are gone. The stock comes last because its row is the one that others wait
// for; if it does not suffice, the order and its entry are undone by whoever ends tx.
func placeOrder(ctx context.Context, tx pgx.Tx, tenant, operationID string, wanted newOrder) (order, error) {
	rows, _ := tx.Query(ctx, `
		INSERT INTO orders (tenant, sku, quantity, amount_cents, currency, note)
		VALUES ($1, $2, $3, $4, $5, $6)
		RETURNING `+orderColumns,
		tenant, wanted.SKU, wanted.Quantity, wanted.AmountCents, wanted.Currency, wanted.Note)
	placed, err := pgx.CollectExactlyOneRow(rows, scanOrder)
	if err != nil {
		return order{}, fmt.Errorf("insert order: %w", err)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO ledger (tenant, order_id, operation_id, amount_cents, currency)
		VALUES ($1, $2, $3, $4, $5)`,
		tenant, placed.ID, operationID, wanted.AmountCents, wanted.Currency)
	if err != nil {
		return order{}, fmt.Errorf("insert ledger entry: %w", err)
	}
	taken, err := tx.Exec(ctx, `
		UPDATE stock SET quantity = quantity - $3
		WHERE tenant = $1 AND sku = $2 AND quantity >= $3`,
		tenant, wanted.SKU, wanted.Quantity)
	if err != nil {
		return order{}, fmt.Errorf("take from stock: %w", err)
	}
	if taken.RowsAffected() == 0 {
		return order{}, errOutOfStock
	}
	return placed, nil
}

func findOrder(ctx context.Context, pool *pgxpool.Pool, tenant string, id int64) (order, error) {
	rows, _ := pool.Query(ctx, `SELECT `+orderColumns+` FROM orders WHERE tenant = $1 AND id = $2`, tenant, id)
	return pgx.CollectExactlyOneRow(rows, scanOrder)
}

func latestOrders(ctx context.Context, pool *pgxpool.Pool, tenant string) ([]order, error) {
	rows, _ := pool.Query(ctx, `SELECT `+orderColumns+` FROM orders WHERE tenant = $1 ORDER BY id DESC LIMIT 20`, tenant)
	return pgx.CollectRows(rows, scanOrder)
}

func scanOrder(row pgx.CollectableRow) (order, error) {
	placed, err := pgx.RowToStructByPos[order](row)
	placed.CreatedAt = placed.CreatedAt.UTC()
	return placed, err
}
