package idemtest_test

import (
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
)

// shop returns a handler that places orders.
type shop func(t testing.TB, pool *pgxpool.Pool) http.Handler

const schema = `CREATE TABLE orders (id serial PRIMARY KEY, tenant text, item text)`

func suiteOf(make shop) idemtest.HandlerSuite {
	return idemtest.HandlerSuite{
		New: func(t testing.TB) (http.Handler, *pgxpool.Pool) {
			pool := idemtest.Pool(t)
			exec(t, pool, schema)
			return make(t, pool), pool
		},
		Request:  func() *http.Request { return order("ada", "teapot") },
		Other:    func() *http.Request { return order("ada", "samovar") },
		Stranger: func() *http.Request { return order("bob", "teapot") },
		Effects:  count("orders"),
		Patience: 6 * time.Second,
	}
}

func order(tenant, item string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"item":"`+item+`"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", tenant)
	r.Header.Set("Idempotency-Key", "8e03978e-40d5-43dd-bc93-6894a57f9324")
	return r
}

func byTenant(r *http.Request) (string, error) {
	return idem.Scope(r.Header.Get("Authorization"), "POST /orders"), nil
}

// wrapped returns a handler behind the middleware.
func wrapped(t testing.TB, pool *pgxpool.Pool, config idemhttp.Config, next http.HandlerFunc) http.Handler {
	if config.Scope == nil {
		config.Scope = byTenant
	}
	middleware, err := idemhttp.New(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	return middleware.Wrap(next)
}

// place inserts an order.
func place(r *http.Request, db interface {
	QueryRow(ctx contextType, sql string, args ...any) pgx.Row
}) (id int, err error) {
	item := itemOf(r)
	err = db.QueryRow(r.Context(), "INSERT INTO orders (tenant, item) VALUES ($1, $2) RETURNING id", r.Header.Get("Authorization"), item).Scan(&id)
	return id, err
}

func TestHandler_FindsEachBadHandler(t *testing.T) {
	t.Parallel()
	for i, bad := range badHandlers {
		if !sampled(i) {
			continue
		}
		t.Run(strings.ReplaceAll(bad.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			suite := suiteOf(bad.make)
			if bad.change != nil {
				bad.change(&suite)
			}
			requireFound(t, bad.breaks, func(times time.Duration) []string {
				suite.Patience *= times
				return record(t, func(t testing.TB) { idemtest.Handler(t, suite) })
			})
		})
	}
}

func TestHandler_AcceptsEachGoodHandler(t *testing.T) {
	t.Parallel()
	for i, good := range goodHandlers {
		if !sampled(i) {
			continue
		}
		t.Run(strings.ReplaceAll(good.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			suite := suiteOf(good.make)
			suite.Patience = 0
			if good.change != nil {
				good.change(&suite)
			}
			requireNothing(t, record(t, func(t testing.TB) { idemtest.Handler(t, suite) }))
		})
	}
}
