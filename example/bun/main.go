// Command bun places an order twice, with bun on top of database/sql: the second time it is told the outcome of the first.
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
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

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
	bun.BaseModel `bun:"table:orders" json:"-"`

	ID  int64 `bun:",pk,autoincrement"`
	SKU string
}

type shop struct {
	db  *sql.DB
	bun *bun.DB
}

func newShop(pool *pgxpool.Pool) (*shop, error) {
	db := idemsql.OpenDB(pool)
	return &shop{db, bun.NewDB(db, pgdialect.New())}, nil
}

// place places an order once, however often it is called with a key.
func (s *shop) place(ctx context.Context, key, sku string) (order, bool, error) {
	o, result, err := idemsql.DoJSON(ctx, s.db, idem.Scope("tenant-1", "place order"), key, idem.HashBytes([]byte(sku)),
		func(tx *sql.Tx) (order, error) {
			o := order{SKU: sku}
			_, err := s.bun.NewInsert().Conn(tx).Model(&o).Exec(ctx)
			return o, err
		})
	return o, result.Replayed, err
}
