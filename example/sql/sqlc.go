package main

import (
	"context"
	"database/sql"

	"github.com/idem-go/idem/example/sql/db"
)

func insertWithSqlc(ctx context.Context, tx *sql.Tx, sku string) (order, error) {
	o, err := db.New(tx).PlaceOrder(ctx, sku)
	return order{o.ID, o.Sku}, err
}
