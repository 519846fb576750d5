package main

import (
	"os"
	"testing"

	"github.com/idem-go/idem/lab/pgtest"
)

func TestOrderIsPlacedOnce(t *testing.T) {
	pool := pgtest.New(t)
	schema, err := os.ReadFile("orders.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), string(schema)); err != nil {
		t.Fatal(err)
	}
	shop := newShop(pool)
	first, replayed, err := shop.place(t.Context(), "k", "teapot")
	if err != nil || replayed || first.ID == 0 || first.SKU != "teapot" {
		t.Fatal(first, replayed, err)
	}
	again, replayed, err := shop.place(t.Context(), "k", "teapot")
	if err != nil || !replayed || again != first {
		t.Error(again, replayed, err)
	}
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from orders").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d orders, %v", n, err)
	}
}
