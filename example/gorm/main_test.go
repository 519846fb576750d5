package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/pgtest"
)

func newTestShop(t *testing.T) (*shop, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t)
	schema, err := os.ReadFile("orders.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), string(schema)); err != nil {
		t.Fatal(err)
	}
	shop, err := newShop(pool)
	if err != nil {
		t.Fatal(err)
	}
	return shop, pool
}

func wantOrders(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from orders").Scan(&n); err != nil || n != want {
		t.Errorf("%d orders, %v", n, err)
	}
}

func TestOrderIsPlacedOnce(t *testing.T) {
	shop, pool := newTestShop(t)
	first, replayed, err := shop.place(t.Context(), "k", "teapot")
	if err != nil || replayed || first.ID == 0 || first.SKU != "teapot" {
		t.Fatal(first, replayed, err)
	}
	again, replayed, err := shop.place(t.Context(), "k", "teapot")
	if err != nil || !replayed || again != first {
		t.Error(again, replayed, err)
	}
	wantOrders(t, pool, 1)
}

func TestOrderIsPlacedOnceOverHTTP(t *testing.T) {
	shop, pool := newTestShop(t)
	handler, err := shop.handler(pool)
	if err != nil {
		t.Fatal(err)
	}
	post := func(body string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", "k")
		handler.ServeHTTP(w, r)
		return w
	}
	first, again := post(`{"SKU":"teapot"}`), post(`{"SKU":"teapot"}`)
	if first.Code != 201 || again.Code != 201 || again.Body.String() != first.Body.String() || again.Header().Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s, and to the retry %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	if other := post(`{"SKU":"samovar"}`); other.Code != http.StatusUnprocessableEntity {
		t.Errorf("another order with the same key is %d", other.Code)
	}
	wantOrders(t, pool, 1)
}
