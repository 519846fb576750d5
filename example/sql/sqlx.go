package main

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"
)

var mapper = sqlx.NewDb(nil, "pgx").Mapper

func insertWithSqlx(ctx context.Context, tx *sql.Tx, sku string) (order, error) {
	var o order
	orders := sqlx.Tx{Tx: tx, Mapper: mapper}
	err := orders.GetContext(ctx, &o, "insert into orders (sku) values ($1) returning id, sku", sku)
	return o, err
}
