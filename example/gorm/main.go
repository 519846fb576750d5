// Command gorm places an order twice, with GORM on top of database/sql: the second time it is told the outcome of the first.
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
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

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
	ID  int64
	SKU string
}

func (order) TableName() string { return "orders" }

type shop struct {
	db   *sql.DB
	orms *gorm.DB
}

func newShop(pool *pgxpool.Pool) (*shop, error) {
	db := idemsql.OpenDB(pool)
	orms, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
	return &shop{db, orms}, err
}

// in returns a gorm.DB whose statements are part of tx. It begins no transaction of its own.
func (s *shop) in(ctx context.Context, tx *sql.Tx) *gorm.DB {
	session := s.orms.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	session.Statement.ConnPool = tx
	return session
}

// place places an order once, however often it is called with a key.
func (s *shop) place(ctx context.Context, key, sku string) (order, bool, error) {
	o, result, err := idemsql.DoJSON(ctx, s.db, idem.Scope("tenant-1", "place order"), key, idem.HashBytes([]byte(sku)),
		func(tx *sql.Tx) (order, error) {
			o := order{SKU: sku}
			err := s.in(ctx, tx).Create(&o).Error
			return o, err
		})
	return o, result.Replayed, err
}
