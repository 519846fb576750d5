package good

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

type caller struct{ TenantID, APIKey, UserID string }

func (s *service) scopesByTheTenant(ctx context.Context, c caller, r *http.Request, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, idem.Scope(c.TenantID, r.Method+" "+r.URL.Path), r.Header.Get("Idempotency-Key"), hash,
		func(pgx.Tx) (idem.Response, error) { return created, nil })
	return err
}

func (s *service) scopesByTheAPIKey(ctx context.Context, c caller, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, c.APIKey, c.UserID, hash, func(pgx.Tx) (idem.Response, error) { return created, nil })
	return err
}

func (s *service) onceForEachUser(ctx context.Context, userID string, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, "welcome mail", userID, hash, func(pgx.Tx) (idem.Response, error) { return created, nil })
	return err
}

func (s *service) stepsUnderAKey(ctx context.Context, tx pgx.Tx, key string, hash idem.Hash) error {
	_, err := idem.DoTx(ctx, tx, key, "charge", hash, func(pgx.Tx) (idem.Response, error) { return created, nil })
	return err
}

func (s *service) keysOfParts(ctx context.Context, d *operation.Definition[string], scope, key, user string, hash idem.Hash) error {
	_, err := d.Do(ctx, s.pool, scope, key+"/"+user, hash, "teapot")
	return err
}

func (s *service) scopesByAScopeKey(ctx context.Context, scopeKey, tenant string, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, scopeKey, tenant, hash, func(pgx.Tx) (idem.Response, error) { return created, nil })
	return err
}

func (s *service) takesTheKeyFirst(ctx context.Context, scope, key string, hash idem.Hash) error {
	return s.recordKey(ctx, key, scope, hash)
}

func (s *service) recordKey(ctx context.Context, key, scope string, hash idem.Hash) error {
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) { return created, nil })
	return err
}
