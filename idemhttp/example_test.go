package idemhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
)

// The examples need a database, so go test does not run them as examples: TestExamples does, each
// on a database of its own, and compares what they print with the comment at their end.
var pool *pgxpool.Pool

// tenantOf stands for the authentication of the service.
func tenantOf(r *http.Request) (string, error) {
	tenant, ok := map[string]string{"Bearer secret": "acme"}[r.Header.Get("Authorization")]
	if !ok {
		return "", &idemhttp.Problem{Type: "urn:example:unauthorized", Title: "The credential is unknown", Status: http.StatusUnauthorized}
	}
	return tenant, nil
}

func ExampleMiddleware_Wrap() {
	middleware, err := idemhttp.New(pool, idemhttp.Config{
		Scope: func(r *http.Request) (string, error) {
			tenant, err := tenantOf(r)
			return idem.Scope(tenant, "POST /orders"), err
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", middleware.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var id int
		err := idemhttp.Tx(r.Context()).QueryRow(r.Context(), "insert into orders (sku) values ('teapot') returning id").Scan(&id)
		if err != nil {
			http.Error(w, "out of order", http.StatusInternalServerError) // nothing is committed, and the key is free
			return
		}
		w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
		w.WriteHeader(http.StatusCreated)
	})))

	handler := inTime(10*time.Second, mux)
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"sku": "teapot"}`))
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Location"), w.Header().Get("Idempotency-Replayed"))
	}
	// Prints:
	// 201 /orders/1
	// 201 /orders/1 true
}

// inTime gives every request a deadline, so that a database that never responds does not block it
// forever.
func inTime(limit time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Under Handle the handler gets the transaction as an argument, and may return an error as its
// answer.
func ExampleMiddleware_Handle() {
	middleware, err := idemhttp.New(pool, idemhttp.Config{
		Scope: func(r *http.Request) (string, error) { return tenantOf(r) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := middleware.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		if _, err := tx.Exec(r.Context(), "insert into orders (sku) values ('samovar')"); err != nil {
			return err // run again if Postgres asks for that, else 500 or 503
		}
		// Final: the order is rolled back, and the answer is recorded.
		return &idemhttp.Problem{Type: "urn:example:out-of-stock", Title: "There is no samovar", Status: http.StatusUnprocessableEntity}
	})
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", nil)
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Idempotency-Key", "7f3c9a52-0d1e")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("Content-Type"), w.Header().Get("Idempotency-Replayed"))
	}
	var orders int
	err = pool.QueryRow(context.Background(), "select count(*) from orders").Scan(&orders)
	fmt.Println(orders, "orders", err)
	// Prints:
	// 422 application/problem+json
	// 422 application/problem+json true
	// 0 orders <nil>
}

func TestExamples(t *testing.T) {
	run := map[string]func(){"Middleware_Wrap": ExampleMiddleware_Wrap, "Middleware_Handle": ExampleMiddleware_Handle}
	examples.Run(t, run, func(t *testing.T, _ string) {
		pool = pgtest.New(t)
		if _, err := pool.Exec(t.Context(), "create table orders (id serial, sku text)"); err != nil {
			t.Fatal(err)
		}
	})
}
