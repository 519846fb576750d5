package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/operation"
)

const (
	bodyLimit   = 64 << 10
	answerLimit = 15 * time.Second // longer than the 5 seconds for which a duplicate waits for the first request
	// patience is how long POST /checkouts waits for the checkout. After that it answers 202 with
	// the URL of the status.
	patience = 8 * time.Second
)

// service is the HTTP API of the shop.
type service struct {
	http.Handler
	pool        *pgxpool.Pool
	credentials credentials
	checkouts   *operation.Definition[cart]
	// placing serves POST /checkouts and knows the checkouts in progress in this process.
	placing *idemhttp.OperationHandler
	metrics *metrics
}

// newService returns a service with all of its routes.
func newService(pool *pgxpool.Pool, credentials credentials, payments *payments, webhookSecret string, metrics *metrics) (*service, error) {
	s := &service{pool: pool, credentials: credentials, checkouts: newCheckouts(payments), metrics: metrics}
	config := func(name string) idemhttp.Config {
		return idemhttp.Config{
			Scope:    s.scope,
			Without:  []string{"/client_time"}, // differs between the attempts of one request
			MaxBody:  bodyLimit,
			Name:     name,
			Observer: metrics.observer,
		}
	}
	orders, err := idemhttp.New(pool, config("place-order"))
	if err != nil {
		return nil, err
	}
	checkouts, err := idemhttp.New(pool, config("checkout"))
	if err != nil {
		return nil, err
	}
	s.placing, err = idemhttp.Operate(checkouts, s.checkouts, idemhttp.OperationConfig[cart]{
		Input: s.cart, StatusPath: "/checkouts/{id}", Patience: patience,
	})
	if err != nil {
		return nil, err
	}
	shipped, err := newShipped(pool, webhookSecret)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", orders.Handle(s.create))
	mux.Handle("GET /orders/status", orders.Status())
	mux.HandleFunc("GET /orders", credentials.reads(s.list))
	mux.HandleFunc("GET /orders/{id}", credentials.reads(s.get))
	mux.Handle("POST /checkouts", s.placing)
	mux.Handle("GET /checkouts/{id}", s.placing.Status())
	mux.Handle("POST /webhooks/fulfilment", shipped)
	mux.Handle("GET /metrics", metrics.handler)
	s.Handler = inTime(mux)
	return s, nil
}

// scope returns the scope of the key of a request: the tenant and the kind of request. The scope
// contains the tenant, not the credential, so that a retry with a rotated credential is still a
// retry. Orders and checkouts share a scope: a key that has placed an order on account cannot place
// another one by card.
func (s *service) scope(r *http.Request) (string, error) {
	tenant, err := s.credentials.tenant(r)
	return scopeOf(tenant), err
}

func scopeOf(tenant string) string { return idem.Scope(tenant, "POST /orders") }

// cart returns the input of the checkout that r asks for.
func (s *service) cart(r *http.Request) (cart, error) {
	tenant, err := s.credentials.tenant(r)
	if err != nil {
		return cart{}, err
	}
	wanted, err := read[newCheckout](r)
	return cart{tenant, wanted}, err
}

// create places an order, once for each key. idemhttp commits the writes and the response in one
// transaction and sends the response after the commit.
//
// If create returns a problem, idemhttp rolls back the writes and records the problem as the final
// answer: the customer has been refused, and a late duplicate must not place the order after all.
// After any other error idemhttp rolls back the writes too, and a retry calls create again.
func (s *service) create(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	tenant, err := s.credentials.tenant(r)
	if err != nil {
		return err
	}
	wanted, err := read[newOrder](r)
	if err != nil {
		return err
	}
	executionID, _ := idem.ExecutionID(tx)
	placed, err := placeOrder(r.Context(), tx, tenant, executionID, wanted)
	if errors.Is(err, errOutOfStock) {
		return outOfStock(wanted)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", placed.ID))
	writeJSON(w, http.StatusCreated, placed)
	return nil
}

func (s *service) list(r *http.Request, tenant string) (any, error) {
	return latestOrders(r.Context(), s.pool, tenant)
}

func (s *service) get(r *http.Request, tenant string) (any, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, noSuchOrder()
	}
	found, err := findOrder(r.Context(), s.pool, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noSuchOrder()
	}
	return found, err
}

// inTime limits the duration of a request to answerLimit.
func inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
