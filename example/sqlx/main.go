// Command sqlx places an order twice, with sqlx on top of database/sql: the second time it is told the outcome of the first.
//
//	DATABASE_URL=postgres://… go run .
//
// The database has the schema of idem, and a table of orders: orders.sql.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	shop, err := newShop(pool)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		order, replayed, err := shop.place(ctx, "7f3c9a52-0d1e", "teapot")
		fmt.Println(order, replayed, err)
	}
}

type order struct {
	ID  int64  `db:"id"`
	SKU string `db:"sku"`
}

type shop struct{ db *sql.DB }

func newShop(pool *pgxpool.Pool) (*shop, error) { return &shop{idemsql.OpenDB(pool)}, nil }

// place places an order once, however often it is called with a key.
func (s *shop) place(ctx context.Context, key, sku string) (order, bool, error) {
	o, result, err := idemsql.DoJSON(ctx, s.db, idem.Scope("tenant-1", "place order"), key, idem.HashBytes([]byte(sku)),
		func(tx *sql.Tx) (order, error) {
			var o order
			orders := sqlx.Tx{Tx: tx, Mapper: mapper}
			err := orders.GetContext(ctx, &o, "insert into orders (sku) values ($1) returning id, sku", sku)
			return o, err
		})
	return o, result.Replayed, err
}

var mapper = sqlx.NewDb(nil, "pgx").Mapper
