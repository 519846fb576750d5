package bad

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/operation"
)

type caller struct{ TenantID, UserID string }

func (s *service) swapsScopeAndKey(ctx context.Context, scope, key string, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, key, scope, hash, func(pgx.Tx) (idem.Response, error) { return created, nil }) // want idemkey
	return err
}

func (s *service) swapsTheHeader(w http.ResponseWriter, r *http.Request, c caller) {
	_, err := idem.Do(r.Context(), s.pool, r.Header.Get("Idempotency-Key"), c.TenantID, idem.HashBytes(nil), // want idemkey
		func(pgx.Tx) (idem.Response, error) { return created, nil })
	if err != nil {
		w.WriteHeader(http.StatusConflict)
	}
}

func (s *service) swapsAVariable(w http.ResponseWriter, r *http.Request) {
	k := r.Header.Get("idempotency-key")
	who := idem.Scope(r.Header.Get("X-Tenant"), "POST /orders")
	_, _, err := idem.DoJSON(r.Context(), s.pool, k, who, idem.HashBytes(nil), func(pgx.Tx) (int, error) { return 1, nil }) // want idemkey
	if err != nil {
		w.WriteHeader(http.StatusConflict)
	}
}

func (s *service) swapsInDatabaseSQL(ctx context.Context, idempotencyKey, userID string, hash idem.Hash) error {
	_, err := idemsql.Do(ctx, s.db, idempotencyKey, userID, hash, func(*sql.Tx) (idem.Response, error) { return created, nil }) // want idemkey
	return err
}

func (s *service) swapsInAnOperation(ctx context.Context, d *operation.Definition[string], tenant, idempotency_key string, hash idem.Hash) error {
	_, err := d.Do(ctx, s.pool, idempotency_key, "orders/"+tenant, hash, "teapot") // want idemkey
	return err
}

func (s *service) swapsInALookup(ctx context.Context, r *http.Request, key string) (idem.Entry, error) {
	return idem.Lookup(ctx, s.pool, key, r.Method+" "+r.URL.Path) // want idemkey
}

func (s *service) swapsInAFunctionOfTheProgram(ctx context.Context, c *caller, key string, hash idem.Hash) error {
	return s.record(ctx, key, c.UserID, hash) // want idemkey
}

func (s *service) record(ctx context.Context, scope, key string, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) { return created, nil })
	return err
}

func (s *service) swapsAnOrderKey(ctx context.Context, tenantID, orderKey string, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, orderKey, idem.Scope(tenantID, "place order"), hash, func(pgx.Tx) (idem.Response, error) { return created, nil }) // want idemkey
	return err
}
