package idemtest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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
func place(r *http.Request, db rower) (id int, err error) {
	return insert(r.Context(), db, r.Header.Get("Authorization"), itemOf(r))
}

func (c handlerCase) labels() (name, breaks, also string) { return c.name, c.breaks, "" }

func (c handlerCase) run(t testing.TB, times time.Duration) {
	suite := suiteOf(c.make)
	if c.change != nil {
		c.change(&suite)
	}
	suite.Patience *= times
	idemtest.Handler(t, suite)
}

func TestHandler_FindsEachBadHandler(t *testing.T) { findsEach(t, badHandlers) }

func TestHandler_AcceptsEachGoodHandler(t *testing.T) { acceptsEach(t, goodHandlers) }
