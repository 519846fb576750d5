package bad

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
)

func (s *service) commits(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES"); err != nil {
			return idem.Response{}, err
		}
		return created, tx.Commit(ctx) // want idemended
	})
}

func (s *service) rollsBack(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		defer func() { _ = tx.Rollback(ctx) }() // want idemended
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
}

func (s *service) commitsInAHelper(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		return created, finish(tx)
	})
}

func finish(tx *sql.Tx) error {
	return tx.Commit() // want idemended
}

func commitsInAHandler(w http.ResponseWriter, r *http.Request) {
	tx := idemhttp.Tx(r.Context())
	if err := tx.Commit(r.Context()); err != nil { // want idemended
		http.Error(w, "no", http.StatusInternalServerError)
	}
}

func (s *service) commitsInFrontOfTheSavepoint(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		if err := tx.Commit(ctx); err != nil { // want idemended
			return idem.Response{}, err
		}
		tx, err := tx.Begin(ctx)
		if err != nil {
			return idem.Response{}, err
		}
		return created, tx.Commit(ctx)
	})
}
