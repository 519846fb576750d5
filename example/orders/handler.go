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
)

const (
	bodyLimit   = 64 << 10
	answerLimit = 15 * time.Second // well beyond the 5 seconds for which a duplicate waits
)

// service is what HTTP asks for.
type service struct {
	pool        *pgxpool.Pool
	credentials credentials
}

func newHandler(pool *pgxpool.Pool, credentials credentials, metrics *metrics) (http.Handler, error) {
	s := &service{pool, credentials}
	once, err := idemhttp.New(pool, idemhttp.Config{
		Scope:    s.scope,
		Without:  []string{"/client_time"}, // different in every attempt
		MaxBody:  bodyLimit,
		Name:     "place-order",
		Observer: metrics.observer,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", once.Handle(s.create))
	mux.Handle("GET /orders/status", once.Status())
	mux.HandleFunc("GET /orders", s.list)
	mux.HandleFunc("GET /orders/{id}", s.get)
	mux.Handle("GET /metrics", metrics.handler)
	return inTime(mux), nil
}

// scope says who is calling, and which operation. Who is the tenant, not the credential: a retry after a rotation is still
// a retry.
func (s *service) scope(r *http.Request) (string, error) {
	tenant, err := s.credentials.tenant(r)
	return scopeOf(tenant), err
}

func scopeOf(tenant string) string { return idem.Scope(tenant, "POST /orders") }

// create places an order, once for each key. Its writes and its answer are committed together, and nothing is sent before.
// A problem that it returns undoes the writes and is final: the customer has been told no, and a late duplicate must not
// turn that into yes. Any other error undoes them as well, and leaves the key free.
func (s *service) create(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
	tenant, err := s.credentials.tenant(r)
	if err != nil {
		return err
	}
	wanted, err := readOrder(r)
	if err != nil {
		return err
	}
	operationID, _ := idem.OperationID(tx)
	placed, err := placeOrder(r.Context(), tx, tenant, operationID, wanted)
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

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	tenant, err := s.credentials.tenant(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	latest, err := latestOrders(r.Context(), s.pool, tenant)
	if err != nil {
		refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, latest)
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	tenant, err := s.credentials.tenant(r)
	if err != nil {
		refuse(w, r, err)
		return
	}
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		refuse(w, r, noSuchOrder())
		return
	}
	found, err := findOrder(r.Context(), s.pool, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = noSuchOrder()
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

// inTime bounds how long a request may take.
func inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
