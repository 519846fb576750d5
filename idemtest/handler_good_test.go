package idemtest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/operation"
)

var goodHandlers = []handlerCase{
	{name: "wrapped", make: good},
	{name: "at serializable", make: configured(idemhttp.Config{TxOptions: pgx.TxOptions{IsoLevel: pgx.Serializable}, Retries: 10})},
	{name: "an order that exists already", make: wrapping(func(w http.ResponseWriter, r *http.Request) {
		_, err := idemhttp.Tx(r.Context()).Exec(r.Context(), `INSERT INTO orders (id, tenant) SELECT coalesce(max(id), 0) + 1, $1 FROM orders
			HAVING count(*) FILTER (WHERE tenant = $1) = 0`, r.Header.Get("Authorization"))
		if err != nil {
			http.Error(w, "", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "there is an order")
	})},
	{name: "without waiting", make: configured(idemhttp.Config{Wait: -1})},
	{name: "without retries", make: configured(idemhttp.Config{Retries: -1})},
	{name: "like Stripe", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		config := idemhttp.StripeConfig()
		config.Scope = byTenant
		return handled(t, pool, config)
	}},
	{name: "handler with an error", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return handled(t, pool, idemhttp.Config{Scope: byTenant})
	}},
	{name: "Do in a handler of its own", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			scope, _ := byTenant(r)
			res, err := idem.Do(r.Context(), pool, scope, r.Header.Get("Idempotency-Key"), idem.HashBytes(body), func(tx pgx.Tx) (idem.Response, error) {
				_, err := place(r, tx)
				return idem.Response{Status: http.StatusCreated, Body: []byte("placed")}, err
			})
			if err != nil {
				http.Error(w, "", errorStatus(err))
				return
			}
			w.WriteHeader(res.Status)
			w.Write(res.Body)
		})
	}},
	{name: "panics on errors", make: wrapping(func(w http.ResponseWriter, r *http.Request) {
		id, err := place(r, idemhttp.Tx(r.Context()))
		if err != nil {
			panic(err)
		}
		created(w, id)
	})},
	{name: "two rows of which both count", make: wrapping(func(w http.ResponseWriter, r *http.Request) {
		if _, err := place(r, idemhttp.Tx(r.Context())); err != nil {
			http.Error(w, "", http.StatusInternalServerError)
			return
		}
		throughTx(w, r)
	})},
	{name: "reads before the middleware", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		next := good(t, pool)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var n int
			if err := pool.QueryRow(r.Context(), "SELECT count(*) FROM orders").Scan(&n); err != nil {
				http.Error(w, "", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}},
	{name: "an operation of Operate", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		return operated(t, pool, 10*time.Millisecond)
	}},
	{name: "a job that is answered 202", make: wrapping(func(w http.ResponseWriter, r *http.Request) {
		id, err := place(r, idemhttp.Tx(r.Context()))
		if err != nil {
			http.Error(w, "", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Location", fmt.Sprintf("/jobs/%d", id))
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusAccepted)
	})},
	{name: "an id of the request in a header", make: func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		next := good(t, pool)
		var n atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", string(rune('a'+n.Add(1))))
			next.ServeHTTP(w, r)
		})
	}},
}

func good(t testing.TB, pool *pgxpool.Pool) http.Handler {
	return wrapped(t, pool, idemhttp.Config{}, throughTx)
}

// configured returns a shop behind a middleware with this configuration.
func configured(config idemhttp.Config) shop {
	return func(t testing.TB, pool *pgxpool.Pool) http.Handler { return wrapped(t, pool, config, throughTx) }
}

// scoped returns a shop whose middleware has this scope.
func scoped(scope func(*http.Request) string) shop {
	return configured(idemhttp.Config{Scope: func(r *http.Request) (string, error) { return scope(r), nil }})
}

// fingerprinted returns a shop whose middleware has this fingerprint.
func fingerprinted(hash func(r *http.Request, body []byte) idem.Hash) shop {
	return configured(idemhttp.Config{Fingerprint: func(r *http.Request, body []byte) (idem.Hash, error) { return hash(r, body), nil }})
}

// rekeyed returns a shop that replaces the key of each request before the middleware.
func rekeyed(key func(*http.Request) string) shop {
	return func(t testing.TB, pool *pgxpool.Pool) http.Handler {
		next := good(t, pool)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Idempotency-Key", key(r))
			next.ServeHTTP(w, r)
		})
	}
}

// wrapping returns a shop with this handler behind the middleware.
func wrapping(next http.HandlerFunc) shop {
	return func(t testing.TB, pool *pgxpool.Pool) http.Handler { return wrapped(t, pool, idemhttp.Config{}, next) }
}

// handled returns a handler that returns its errors.
func handled(t testing.TB, pool *pgxpool.Pool, config idemhttp.Config) http.Handler {
	middleware, err := idemhttp.New(pool, config)
	if err != nil {
		t.Fatal(err)
	}
	return middleware.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		id, err := place(r, tx)
		if err == nil {
			created(w, id)
		}
		return err
	})
}

// throughTx places an order in the transaction of the middleware.
func throughTx(w http.ResponseWriter, r *http.Request) { answerOrder(w, r, idemhttp.Tx(r.Context())) }

func answerOrder(w http.ResponseWriter, r *http.Request, db rower) {
	id, err := place(r, db)
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	created(w, id)
}

func errorStatus(err error) int {
	if errors.Is(err, idem.ErrMismatch) {
		return http.StatusUnprocessableEntity
	}
	return http.StatusServiceUnavailable
}

// inMemory stores answers by key in a map.
func inMemory(next http.Handler) http.Handler {
	var mu sync.Mutex
	answers := map[string]*httptest.ResponseRecorder{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key := r.Header.Get("Idempotency-Key")
		if answers[key] == nil {
			answers[key] = httptest.NewRecorder()
			next.ServeHTTP(answers[key], r)
		}
		forward(w, answers[key])
	})
}

// forward writes a recorded answer.
func forward(w http.ResponseWriter, from *httptest.ResponseRecorder) {
	for name, values := range from.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(from.Code)
	w.Write(from.Body.Bytes())
}

// quiet discards what is written to it. The answer was written elsewhere.
type quiet struct{ http.ResponseWriter }

func (quiet) WriteHeader(int)             {}
func (quiet) Write(p []byte) (int, error) { return len(p), nil }

func status(w http.ResponseWriter) int { return w.(*httptest.ResponseRecorder).Code }

// bank counts the charges for each database.
func bank(pool *pgxpool.Pool) *atomic.Int64 {
	n, _ := banks.LoadOrStore(pool, &atomic.Int64{})
	return n.(*atomic.Int64)
}

var banks sync.Map

// inBackground runs f after the handler has answered.
func inBackground(t testing.TB, f func()) {
	t.Cleanup(func() {})
	go f()
}

// lookThenPlace checks for an order and then inserts one, as programs without idem often do. Each
// execution has a key of its own.
func lookThenPlace(t testing.TB, pool *pgxpool.Pool) http.Handler {
	next := wrapped(t, pool, idemhttp.Config{}, func(w http.ResponseWriter, r *http.Request) {
		_, err := idemhttp.Tx(r.Context()).Exec(r.Context(), "INSERT INTO orders (tenant, item, key) VALUES ($1, $2, $3)",
			r.Header.Get("Authorization"), itemOf(r), r.Header.Get("X-Key"))
		if err != nil {
			http.Error(w, "", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Authorization") + r.Header.Get("Idempotency-Key")
		var n int
		if err := pool.QueryRow(r.Context(), "SELECT count(*) FROM orders WHERE key = $1", key).Scan(&n); err != nil {
			http.Error(w, "", http.StatusInternalServerError)
			return
		}
		if n > 0 {
			w.WriteHeader(http.StatusCreated)
			return
		}
		r.Header.Set("X-Key", key)
		r.Header.Set("Idempotency-Key", rand.Text())
		next.ServeHTTP(w, r)
	})
}

// operated places orders with an operation that takes longer than the request waits.
func operated(t testing.TB, pool *pgxpool.Pool, patience time.Duration) http.Handler {
	type order struct{ Item string }
	ordering := operation.Define("order", func(op *operation.Op, in order) (idem.Response, error) {
		id, err := operation.Tx(op, "place", func(tx pgx.Tx) (id int, err error) {
			err = tx.QueryRow(op.Context(), "INSERT INTO orders (item) VALUES ($1) RETURNING id", in.Item).Scan(&id)
			return id, err
		})
		if err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			time.Sleep(2 * patience)
			return key, nil
		}); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{Status: http.StatusCreated, Body: fmt.Append(nil, id)}, nil
	})
	m, err := idemhttp.New(pool, idemhttp.Config{Scope: byTenant})
	if err != nil {
		t.Fatal(err)
	}
	h, err := idemhttp.Operate(m, ordering, idemhttp.OperationConfig[order]{StatusPath: "/operations/{id}", Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = h.Shutdown(ctx)
	})
	return h
}
