// Command sql makes two calls with one key that place an order, through a library that is built on
// database/sql. The second call replays the result of the first.
//
//	DATABASE_URL=postgres://… go run . bun
//
// The libraries are bun, ent, gorm, sqlc and sqlx. Each has its own file. The database must have
// the schema of idem and the table of orders.sql.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
)

type order struct {
	ID  int64  `db:"id"`
	SKU string `db:"sku"`
}

// insert inserts an order in the transaction tx.
type insert func(ctx context.Context, tx *sql.Tx, sku string) (order, error)

// libraries maps each library to a function that inserts an order.
func libraries(db *sql.DB) (map[string]insert, error) {
	gorm, err := openGorm(db)
	if err != nil {
		return nil, err
	}
	return map[string]insert{
		"bun":  newBun(db).insert,
		"ent":  insertWithEnt,
		"gorm": gorm.insert,
		"sqlc": insertWithSqlc,
		"sqlx": insertWithSqlx,
	}, nil
}

// place places an order. Calls with the same key place one order, and the later calls get its
// result. The second return value reports whether the result is a replay.
func place(ctx context.Context, db *sql.DB, insert insert, key, sku string) (order, bool, error) {
	o, result, err := idemsql.DoJSON(ctx, db, idem.Scope("tenant-1", "place order"), key, idem.HashBytes([]byte(sku)),
		func(tx *sql.Tx) (order, error) {
			return insert(ctx, tx, sku)
		})
	return o, result.Replayed, err
}

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	db := idemsql.OpenDB(pool)
	all, err := libraries(db)
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) != 2 || all[os.Args[1]] == nil {
		log.Fatalf("usage: sql <library>, one of %v", slices.Sorted(maps.Keys(all)))
	}
	for range 2 {
		order, replayed, err := place(ctx, db, all[os.Args[1]], "7f3c9a52-0d1e", "teapot")
		fmt.Println(order, replayed, err)
	}
}
