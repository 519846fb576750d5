package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

const (
	bodyLimit   = 64 << 10
	answerLimit = 15 * time.Second // well beyond the 5 seconds for which idem.Do waits on another holder of the key
)

// handler is the service as HTTP sees it.
type handler struct {
	pool        *pgxpool.Pool
	credentials credentials
}

func newHandler(pool *pgxpool.Pool, credentials credentials) http.Handler {
	h := &handler{pool: pool, credentials: credentials}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", h.forTenant(h.create))
	mux.HandleFunc("GET /orders", h.forTenant(h.list))
	mux.HandleFunc("GET /orders/{id}", h.forTenant(h.get))
	return mux
}

// create places an order, once for each key.
func (h *handler) create(w http.ResponseWriter, r *http.Request, tenant string) error {
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return unreadable(err)
	}
	// Two requests are the same if they ask for the same order. The document decides, whatever fields it will have one day,
	// except for the one that is different in every attempt.
	hash, err := idem.HashJSON(body, idem.Without("/client_time"))
	if err != nil {
		return err
	}
	wanted, err := parseOrder(body)
	if err != nil {
		return err
	}
	// Who is calling, and which operation. Who is the tenant, not the credential: a retry after a rotation is still a retry.
	scope := idem.Scope(tenant, "POST /orders")

	ctx := r.Context()
	result, err := idem.Do(ctx, h.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		operationID, _ := idem.OperationID(tx)
		placed, err := placeOrder(ctx, tx, tenant, operationID, wanted)
		switch {
		case errors.Is(err, errOutOfStock):
			// Final: the customer has been told no, and a late duplicate must not turn that into yes.
			return idem.Response{}, idem.Reject(outOfStock(wanted).response())
		case err != nil:
			return idem.Response{}, err // nothing is recorded, and the key is free
		}
		return orderPlaced(placed), nil
	})
	if err != nil {
		return err
	}
	writeResult(w, result)
	return nil
}

// orderPlaced is recorded as it is: what it leaves out, no replay will have.
func orderPlaced(placed order) idem.Response {
	response := jsonResponse(http.StatusCreated, "application/json", placed)
	response.Header["Location"] = []string{fmt.Sprintf("/orders/%d", placed.ID)}
	return response
}

func (h *handler) list(w http.ResponseWriter, r *http.Request, tenant string) error {
	latest, err := latestOrders(r.Context(), h.pool, tenant)
	if err != nil {
		return err
	}
	writeResponse(w, jsonResponse(http.StatusOK, "application/json", latest))
	return nil
}

func (h *handler) get(w http.ResponseWriter, r *http.Request, tenant string) error {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return noSuchOrder()
	}
	found, err := findOrder(r.Context(), h.pool, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return noSuchOrder()
	}
	if err != nil {
		return err
	}
	writeResponse(w, jsonResponse(http.StatusOK, "application/json", found))
	return nil
}

// forTenant admits requests with a known credential, bounds them in size and time, and answers those that fail.
func (h *handler) forTenant(next func(http.ResponseWriter, *http.Request, string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tenant, known := h.credentials.tenant(r)
		if !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeResponse(w, unauthorized().response())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, bodyLimit)
		if err := next(w, r, tenant); err != nil {
			answer := refusal(err)
			if answer.Status >= 500 {
				slog.ErrorContext(ctx, "request failed", "tenant", tenant, "method", r.Method, "path", r.URL.Path, "error", err)
			}
			writeResponse(w, answer.response())
		}
	}
}
