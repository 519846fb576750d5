package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// order is a stored order.
type order struct {
	ID          int64     `json:"id"`
	SKU         string    `json:"sku"`
	Quantity    int32     `json:"quantity"`
	AmountCents int64     `json:"amount_cents"`
	Currency    string    `json:"currency"`
	Note        string    `json:"note,omitempty"`
	ChargeID    string    `json:"charge_id,omitempty"` // the id of the charge at the bank; empty for an order on account
	CreatedAt   time.Time `json:"created_at"`
}

const orderColumns = `id, sku, quantity, amount_cents, currency, note, charge_id, created_at`

var errOutOfStock = errors.New("not enough in stock")

// placeOrder inserts an order, its ledger entry and the message to fulfilment, and reduces the
// stock. It returns errOutOfStock if the stock does not suffice.
//
// All writes are on tx, so placeOrder may run again if tx is rolled back. The stock comes last
// because other orders wait for the lock on its row. If the stock does not suffice, the rollback of
// tx removes the earlier writes.
func placeOrder(ctx context.Context, tx pgx.Tx, tenant, executionID string, wanted newOrder) (order, error) {
	const onAccount = "" // no charge
	placed, err := insertOrder(ctx, tx, tenant, executionID, wanted, onAccount)
	if err != nil {
		return order{}, err
	}
	return placed, takeFromStock(ctx, tx, tenant, wanted)
}

// insertOrder inserts an order, its ledger entry and the message to fulfilment.
func insertOrder(ctx context.Context, tx pgx.Tx, tenant, executionID string, wanted newOrder, chargeID string) (order, error) {
	rows, _ := tx.Query(ctx, `
		INSERT INTO orders (tenant, sku, quantity, amount_cents, currency, note, charge_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		RETURNING `+orderColumns,
		tenant, wanted.SKU, wanted.Quantity, wanted.AmountCents, wanted.Currency, wanted.Note, chargeID)
	placed, err := pgx.CollectExactlyOneRow(rows, scanOrder)
	if err != nil {
		return order{}, fmt.Errorf("insert order: %w", err)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO ledger (tenant, order_id, execution_id, amount_cents, currency)
		VALUES ($1, $2, $3, $4, $5)`,
		tenant, placed.ID, executionID, wanted.AmountCents, wanted.Currency)
	if err != nil {
		return order{}, fmt.Errorf("insert ledger entry: %w", err)
	}
	return placed, addOrderPlaced(ctx, tx, tenant, placed)
}

// takeFromStock reduces the stock. It returns errOutOfStock if there is not enough.
func takeFromStock(ctx context.Context, tx pgx.Tx, tenant string, wanted newOrder) error {
	taken, err := tx.Exec(ctx, `
		UPDATE stock SET quantity = quantity - $3
		WHERE tenant = $1 AND sku = $2 AND quantity >= $3`,
		tenant, wanted.SKU, wanted.Quantity)
	if err != nil {
		return fmt.Errorf("take from stock: %w", err)
	}
	if taken.RowsAffected() == 0 {
		return errOutOfStock
	}
	return nil
}

// giveBack undoes takeFromStock.
func giveBack(ctx context.Context, tx pgx.Tx, tenant string, wanted newOrder) error {
	_, err := tx.Exec(ctx, `UPDATE stock SET quantity = quantity + $3 WHERE tenant = $1 AND sku = $2`,
		tenant, wanted.SKU, wanted.Quantity)
	if err != nil {
		return fmt.Errorf("give back to stock: %w", err)
	}
	return nil
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
