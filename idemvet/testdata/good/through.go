package good

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

type embeds struct{ *pgxpool.Pool }

// once passes the first function to idem, and calls the second one afterwards.
func (s *service) once(r *http.Request, hash idem.Hash, fn func(ctx context.Context, tx pgx.Tx) (idem.Response, error), behind func() error) error {
	_, err := idem.Do(r.Context(), s.pool, "orders", r.Header.Get("Idempotency-Key"), hash, func(tx pgx.Tx) (idem.Response, error) {
		return fn(r.Context(), tx)
	})
	if err != nil {
		return err
	}
	return behind()
}

func (s *service) givesWhatIsBehind(r *http.Request, hash idem.Hash) error {
	return s.once(r, hash, func(ctx context.Context, tx pgx.Tx) (idem.Response, error) {
		return created, s.queries.WithTx(tx).CreateOrder(ctx, "teapot")
	}, func() error {
		_, err := s.pool.Exec(r.Context(), "INSERT INTO visits DEFAULT VALUES")
		return err
	})
}

func (s *service) closuresOfTheTransaction(ctx context.Context, scope, key string, hash idem.Hash) error {
	customer := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO customers DEFAULT VALUES")
		return err
	}
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		of := s.queries.WithTx(tx)
		again := func(item string) error { return of.CreateOrder(ctx, item) }
		rows := func() (pgx.Rows, error) { return tx.Query(ctx, "SELECT id FROM orders") }
		read, err := rows()
		if err != nil {
			return idem.Response{}, err
		}
		if _, err := pgx.CollectRows(read, pgx.RowTo[int]); err != nil {
			return idem.Response{}, err
		}
		if err := customer(tx); err != nil {
			return idem.Response{}, err
		}
		return created, again("cup")
	})
	return err
}

func (s *service) closureThatIsCalledBehind(ctx context.Context, scope, key string, hash idem.Hash) error {
	visit := func() error {
		_, err := s.pool.Exec(ctx, "INSERT INTO visits DEFAULT VALUES")
		return err
	}
	if _, err := idem.Do(ctx, s.pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) { return created, nil }); err != nil {
		return err
	}
	return visit()
}

func (s *embeds) promotedInFront(ctx context.Context, scope, key string, hash idem.Hash) error {
	if _, err := s.Exec(ctx, "INSERT INTO visits DEFAULT VALUES"); err != nil {
		return err
	}
	_, err := idem.Do(ctx, s.Pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		exec := tx.Exec
		if s.Stat().IdleConns() == 0 {
			return created, nil
		}
		_, err := exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
	return err
}

func (s *service) savepointsByAnotherName(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := tx.Exec(ctx, "SAVEPOINT a"); err != nil {
			return idem.Response{}, err
		}
		if _, err := tx.Exec(ctx, "ROLLBACK TO SAVEPOINT a"); err != nil {
			return idem.Response{}, err
		}
		try, err := tx.Begin(ctx)
		if err != nil {
			return idem.Response{}, err
		}
		var id int
		_ = try.QueryRow(ctx, "INSERT INTO guesses DEFAULT VALUES RETURNING id").Scan(&id)
		if err := s.queries.WithTx(try).CreateOrder(ctx, "cup"); err != nil {
			return idem.Response{}, err
		}
		t := try
		return created, t.Rollback(ctx)
	})
}

// again calls a function until it succeeds, in or outside of a transaction.
func again(fn func() error) (err error) {
	for range 3 {
		if err = fn(); err == nil {
			break
		}
	}
	return err
}

func (s *service) triesAgainInsideAndBehind(ctx context.Context, scope, key string, hash idem.Hash) error {
	if _, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, again(func() error {
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		})
	}); err != nil {
		return err
	}
	return again(func() error {
		_, err := s.pool.Exec(ctx, "INSERT INTO visits DEFAULT VALUES")
		return err
	})
}
