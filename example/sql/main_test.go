package main

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/lab/pgtest"
)

func openShop(t *testing.T) (*sql.DB, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t)
	schema, err := os.ReadFile("orders.sql")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), string(schema)); err != nil {
		t.Fatal(err)
	}
	return idemsql.OpenDB(pool), pool
}

func wantOrders(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from orders").Scan(&n); err != nil || n != want {
		t.Errorf("%d orders, %v; want %d", n, err, want)
	}
}

func TestLibraries_PlaceAnOrderOnce(t *testing.T) {
	db, pool := openShop(t)
	all, err := libraries(db)
	if err != nil {
		t.Fatal(err)
	}
	for name, insert := range all {
		t.Run(name, func(t *testing.T) {
			first, replayed, err := place(t.Context(), db, insert, name, "teapot")
			if err != nil || replayed || first.ID == 0 || first.SKU != "teapot" {
				t.Fatal(first, replayed, err)
			}
			again, replayed, err := place(t.Context(), db, insert, name, "teapot")
			if err != nil || !replayed || again != first {
				t.Error(again, replayed, err)
			}
		})
	}
	wantOrders(t, pool, len(all))
}

func TestHandler_PlacesAnOrderOnce(t *testing.T) {
	db, pool := openShop(t)
	gorm, err := openGorm(db)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := gorm.handler(pool, db)
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
