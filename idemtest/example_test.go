package idemtest_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemtest"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
)

// t is set by the tests below, which run the examples.
var t testing.TB

// newDatabase creates the tables that the migrations of a program would create.
func newDatabase(t testing.TB) *pgxpool.Pool {
	pool := idemtest.Pool(t)
	if _, err := pool.Exec(t.Context(), "CREATE TABLE orders (id serial PRIMARY KEY, tenant text, item text)"); err != nil {
		t.Fatal(err)
	}
	return pool
}

func countOrders(ctx context.Context, pool *pgxpool.Pool) (n int, err error) {
	err = pool.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&n)
	return n, err
}

func ExampleHandler() {
	newServer := func(pool *pgxpool.Pool) http.Handler {
		middleware, err := idemhttp.New(pool, idemhttp.Config{
			Scope: func(r *http.Request) (string, error) {
				return idem.Scope(r.Header.Get("Authorization"), "POST /orders"), nil
			},
		})
		if err != nil {
			panic(err)
		}
		return middleware.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
			_, err := tx.Exec(r.Context(), "INSERT INTO orders (tenant) VALUES ($1)", r.Header.Get("Authorization"))
			w.WriteHeader(http.StatusCreated)
			return err
		})
	}
	request := func(tenant, item string) func() *http.Request {
		return func() *http.Request {
			r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(item))
			r.Header.Set("Authorization", tenant)
			r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
			return r
		}
	}
	idemtest.Handler(t, idemtest.HandlerSuite{
		New: func(t testing.TB) (http.Handler, *pgxpool.Pool) {
			pool := newDatabase(t)
			return newServer(pool), pool
		},
		Request: request("ada", "teapot"), Other: request("ada", "samovar"), Stranger: request("bob", "teapot"),
		Effects: countOrders,
	})
}

func ExampleFunc() {
	place := func(tenant, key, item string) idemtest.Call {
		return func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
			id, _, err := idem.DoJSON(ctx, pool, tenant, key, idem.HashBytes([]byte(item)), func(tx pgx.Tx) (id int, err error) {
				err = tx.QueryRow(ctx, "INSERT INTO orders (tenant, item) VALUES ($1, $2) RETURNING id", tenant, item).Scan(&id)
				return id, err
			})
			return id, err
		}
	}
	idemtest.Func(t, idemtest.FuncSuite{
		New:  newDatabase,
		Call: place("ada", "key-1", "teapot"), Other: place("ada", "key-1", "samovar"),
		Stranger: place("bob", "key-1", "teapot"), Next: place("ada", "key-2", "teapot"),
		Effects: countOrders,
	})
}

func ExampleConsumer() {
	deliver := func(id, item string) idemtest.Delivery {
		return func(ctx context.Context, pool *pgxpool.Pool) error {
			message := inbox.Message{Source: "shop", ID: id, Payload: []byte(item)}
			outcome, err := inbox.Handle(ctx, pool, "orders", message, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO orders (item) VALUES ($1)", item)
				return err
			})
			if outcome.State == inbox.Retry {
				return outcome.Err
			}
			return err
		}
	}
	idemtest.Consumer(t, idemtest.ConsumerSuite{
		New:     newDatabase,
		Deliver: deliver("m-1", "teapot"), Next: deliver("m-2", "teapot"), Other: deliver("m-1", "samovar"),
		Effects: countOrders,
	})
}

func ExampleOperation() {
	checkout := operation.Define("example checkout", func(op *operation.Op, item string) (idem.Response, error) {
		err := operation.Exec(op, "reserve", func(tx pgx.Tx) error {
			_, err := tx.Exec(op.Context(), "INSERT INTO orders (item) VALUES ($1)", item)
			return err
		})
		if err != nil {
			return idem.Response{}, err
		}
		receipt, err := operation.Call(op, "charge", operation.Keyed(23*time.Hour), func(_ context.Context, key string) (string, error) {
			return "charged under " + key, nil // the bank recognizes a repeated key
		})
		return idem.Response{Status: 201, Body: []byte(receipt)}, err
	})
	idemtest.Operation(t, idemtest.OperationSuite{
		New: newDatabase,
		Call: func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
			return checkout.Do(ctx, pool, "ada", "key-1", idem.HashBytes([]byte("teapot")), "teapot")
		},
		Effects: countOrders,
	})
}

// The files are histories of operations that earlier releases have started:
//
//	idem operation history 0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10 > testdata/histories/checkout-charged.json
func ExampleReplay() {
	checkout := operation.Define("checkout", func(op *operation.Op, item string) (idem.Response, error) {
		_, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (id int, err error) {
			err = tx.QueryRow(op.Context(), "INSERT INTO orders (item) VALUES ($1) RETURNING id", item).Scan(&id)
			return id, err
		})
		if err != nil {
			return idem.Response{}, err
		}
		if op.Changed("fraud check") { // added in this release; without Changed it would park operations in progress
			_, err := operation.Call(op, "check", operation.Keyed(time.Hour), func(context.Context, string) (bool, error) { return true, nil })
			if err != nil {
				return idem.Response{}, err
			}
		}
		receipt, err := operation.Call(op, "charge", operation.Keyed(23*time.Hour), func(_ context.Context, key string) (string, error) {
			return "charged under " + key, nil
		})
		return idem.Response{Status: 201, Body: []byte(receipt)}, err
	})
	idemtest.Replay(t, "testdata/histories/*.json", checkout)
}

// These tests are not parallel: the examples share their t.
func TestOrdersAreSafeToRetry(test *testing.T)       { t = test; ExampleHandler() }
func TestPlaceOrderIsSafeToRetry(test *testing.T)    { t = test; ExampleFunc() }
func TestConsumerIsSafeToRetry(test *testing.T)      { t = test; ExampleConsumer() }
func TestCheckoutSurvivesItsProcess(test *testing.T) { t = test; ExampleOperation() }
func TestNewCheckoutContinuesTheOld(test *testing.T) { t = test; ExampleReplay() }
