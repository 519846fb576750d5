package bad

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

type embeds struct{ *pgxpool.Pool }

// once passes a function to idem, like a service with a fixed scope.
func (s *service) once(r *http.Request, hash idem.Hash, fn func(ctx context.Context, tx pgx.Tx) (idem.Response, error)) (idem.Result, error) {
	return idem.Do(r.Context(), s.pool, "orders", r.Header.Get("Idempotency-Key"), hash, func(tx pgx.Tx) (idem.Response, error) {
		return fn(r.Context(), tx)
	})
}

// onceAs passes a function with a typed result to idem.
func onceAs[T any](ctx context.Context, s *service, key string, hash idem.Hash, fn func(tx pgx.Tx) (T, error)) (T, error) {
	v, _, err := idem.DoJSON(ctx, s.pool, "orders", key, hash, fn)
	return v, err
}

// checked calls a check in the transaction.
func (s *service) checked(ctx context.Context, key string, hash idem.Hash, check func() error) error {
	_, err := idem.Do(ctx, s.pool, "orders", key, hash, func(pgx.Tx) (idem.Response, error) { return created, check() })
	return err
}

func (s *service) givesAMethod(w http.ResponseWriter, r *http.Request, hash idem.Hash) {
	_, err := s.once(r, hash, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		if _, err := http.Post("https://bank.example/charges", "", nil); err != nil { // want idemcallout
			return idem.Response{}, err
		}
		_, err := s.pool.Exec(ctx, "INSERT INTO orders DEFAULT VALUES") // want idemoutside
		return created, err
	})
	if err != nil {
		w.WriteHeader(http.StatusConflict)
	}
}

func (s *service) givesAGenericFunction(ctx context.Context, key string, hash idem.Hash) error {
	_, err := onceAs(ctx, s, key, hash, func(tx pgx.Tx) (int, error) {
		return 1, tx.Commit(ctx) // want idemended
	})
	return err
}

func (s *service) givesACheck(ctx context.Context, key string, hash idem.Hash) error {
	return s.checked(ctx, key, hash, func() error {
		_, err := s.pool.Exec(ctx, "INSERT INTO checks DEFAULT VALUES") // want idemoutside
		return err
	})
}

func (s *service) closureInFront(ctx context.Context, scope, key string, hash idem.Hash) error {
	record := func() error {
		_, err := s.pool.Exec(ctx, "INSERT INTO audit DEFAULT VALUES") // want idemoutside
		return err
	}
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) { return created, record() })
	return err
}

func (s *service) closureInside(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		end := func() error { return tx.Commit(ctx) } // want idemended
		return created, end()
	})
}

func (s *embeds) promoted(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.Pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) {
		_, err := s.Exec(ctx, "INSERT INTO orders DEFAULT VALUES") // want idemoutside
		return created, err
	})
}

func (s *service) methodValueOfThePool(ctx context.Context, scope, key string, hash idem.Hash) error {
	exec := s.pool.Exec
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) {
		_, err := exec(ctx, "INSERT INTO orders DEFAULT VALUES") // want idemoutside
		return created, err
	})
	return err
}

func (s *service) doAsAValue(ctx context.Context, scope, key string, hash idem.Hash) error {
	do := idem.Do
	_, err := do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) {
		_, err := s.pool.Exec(ctx, "INSERT INTO orders DEFAULT VALUES") // want idemoutside
		return created, err
	})
	return err
}

func (s *service) commitsByAnotherName(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		t := tx
		return created, t.Commit(ctx) // want idemended
	})
}

func (s *service) commitsBySQL(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "commit;") // want idemended
		return created, err
	})
}

func (s *service) ignoresAScan(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		var id int
		tx.QueryRow(ctx, "INSERT INTO orders DEFAULT VALUES RETURNING id").Scan(&id)     // want idemignored
		_ = tx.QueryRow(ctx, "INSERT INTO orders DEFAULT VALUES RETURNING id").Scan(&id) // want idemignored
		return created, nil
	})
}
