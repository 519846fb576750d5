package bad

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/gorm"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemhttp"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
)

func poolInside(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := pool.Exec(ctx, "INSERT INTO orders DEFAULT VALUES") // want idemoutside
		return created, err
	})
}

func (s *service) poolOfTheService(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		var n int
		err := s.pool.QueryRow(ctx, "UPDATE stock SET n = n - 1 RETURNING n").Scan(&n) // want idemoutside
		return created, err
	})
}

func (s *service) methodAsFunction(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, s.placeOrder)
}

func (s *service) placeOrder(tx pgx.Tx) (idem.Response, error) {
	_, err := s.pool.Exec(context.TODO(), "INSERT INTO orders DEFAULT VALUES") // want idemoutside
	return created, err
}

func helperThatHasThePool(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, audit(ctx, pool, "order")
	})
}

func audit(ctx context.Context, pool *pgxpool.Pool, what string) error {
	_, err := pool.Exec(ctx, "INSERT INTO audit (what) VALUES ($1)", what) // want idemoutside
	return err
}

func (s *service) queriesWithoutTx(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, s.queries.CreateOrder(ctx, "teapot") // want idemoutside
	})
}

func transactionOfItsOwn(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, pool, scope, key, hash, func(pgx.Tx) (idem.Response, error) {
		return created, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // want idemoutside
			_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
			return err
		})
	})
}

func connectionOfThePool(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		conn, err := pool.Acquire(ctx) // want idemoutside
		if err != nil {
			return idem.Response{}, err
		}
		defer conn.Release()                                       // want idemoutside
		_, err = conn.Exec(ctx, "UPDATE accounts SET balance = 0") // want idemoutside
		return created, err
	})
}

func anotherTransaction(ctx context.Context, pool *pgxpool.Pool, outer pgx.Tx, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := outer.Exec(ctx, "INSERT INTO orders DEFAULT VALUES") // want idemoutside
		return created, err
	})
}

func doInsideOfDo(ctx context.Context, pool *pgxpool.Pool, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := idem.Do(ctx, pool, scope, key+"/stock", hash, func(tx pgx.Tx) (idem.Response, error) { // want idemoutside
			return created, nil
		})
		return created, err
	})
}

func (s *service) databaseInsideOfSQL(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		_, err := s.db.ExecContext(ctx, "INSERT INTO orders DEFAULT VALUES") // want idemoutside
		return created, err
	})
}

func gormOfTheProgram(ctx context.Context, db *sql.DB, orders *gorm.DB, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		return created, orders.WithContext(ctx).Exec("INSERT INTO orders DEFAULT VALUES").Error // want idemoutside
	})
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tx := idemhttp.Tx(r.Context())
	if _, err := tx.Exec(r.Context(), "INSERT INTO orders DEFAULT VALUES"); err != nil {
		http.Error(w, "no", http.StatusInternalServerError)
		return
	}
	_, _ = s.pool.Exec(r.Context(), "UPDATE stock SET n = n - 1") // want idemoutside
}

func (s *service) handlerOfTheMiddleware(m *idemhttp.Middleware) http.Handler {
	return m.Handle(func(tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
		return s.queries.CreateOrder(r.Context(), "teapot") // want idemoutside
	})
}

func (s *service) consumer(ctx context.Context, m inbox.Message) (inbox.Outcome, error) {
	return inbox.Handle(ctx, s.pool, "shipping", m, func(tx pgx.Tx) error {
		_, err := s.pool.Exec(ctx, "INSERT INTO parcels DEFAULT VALUES") // want idemoutside
		return err
	})
}

func stepByThePool(pool *pgxpool.Pool) *operation.Definition[string] {
	return operation.Define("checkout", func(op *operation.Op, in string) (idem.Response, error) {
		_, err := operation.Tx(op, "order", func(tx pgx.Tx) (int, error) {
			_, err := pool.Exec(op.Context(), "INSERT INTO orders DEFAULT VALUES") // want idemoutside
			return 1, err
		})
		return created, err
	})
}
