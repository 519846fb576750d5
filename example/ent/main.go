// Command ent places an order twice, with ent on top of database/sql: the second time it is told the outcome of the first.
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

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/ent/ent"
	"github.com/idem-go/idem/idemsql"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	shop := newShop(pool)
	for range 2 {
		order, replayed, err := shop.place(ctx, "7f3c9a52-0d1e", "teapot")
		fmt.Println(order, replayed, err)
	}
}

type order struct {
	ID  int64
	SKU string
}

type shop struct{ db *sql.DB }

func newShop(pool *pgxpool.Pool) *shop { return &shop{idemsql.OpenDB(pool)} }

// in returns a client whose statements are part of tx. It is not for what begins a transaction of its own.
func in(tx *sql.Tx) *ent.Client {
	return ent.NewClient(ent.Driver(entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})))
}

// place places an order once, however often it is called with a key.
func (s *shop) place(ctx context.Context, key, sku string) (order, bool, error) {
	o, result, err := idemsql.DoJSON(ctx, s.db, idem.Scope("tenant-1", "place order"), key, idem.HashBytes([]byte(sku)),
		func(tx *sql.Tx) (order, error) {
			placed, err := in(tx).Order.Create().SetSku(sku).Save(ctx)
			if err != nil {
				return order{}, err
			}
			return order{placed.ID, placed.Sku}, nil
		})
	return o, result.Replayed, err
}
