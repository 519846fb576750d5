package bad

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

func (s *service) neverEnds(scope, key string, hash idem.Hash) error {
	_, err := idem.Do(context.Background(), s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) { // want idemdeadline
		return created, nil
	})
	return err
}

func (s *service) detached(ctx context.Context, scope, key string, hash idem.Hash) error {
	ctx = context.WithValue(context.WithoutCancel(ctx), scopeKey{}, scope)
	detached := context.WithoutCancel(ctx)
	_, err := idem.Do(detached, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) { // want idemdeadline
		return created, nil
	})
	return err
}

type scopeKey struct{}
