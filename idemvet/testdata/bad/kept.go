package bad

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
)

func (s *service) keepsItInAField(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		s.tx = tx // want idemkept
		return created, nil
	})
}

func (s *service) keepsQueries(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		s.queries = s.queries.WithTx(tx)                     // want idemkept
		return created, s.queries.CreateOrder(ctx, "teapot") // want idemoutside
	})
}

func (s *service) keepsItInAVariable(ctx context.Context, scope, key string, hash idem.Hash) error {
	var kept pgx.Tx
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		kept = tx // want idemkept
		return created, nil
	})
	if err == nil {
		_, err = kept.Exec(ctx, "UPDATE orders SET done = true")
	}
	return err
}

func (s *service) readsLater(ctx context.Context, scope, key string, hash idem.Hash) (pgx.Rows, error) {
	var rows pgx.Rows
	_, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (_ idem.Response, err error) {
		rows, err = tx.Query(ctx, "SELECT id FROM orders") // want idemkept
		return created, err
	})
	return rows, err
}

func (s *service) writesInAGoroutine(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		go func() { // want idemkept
			if _, err := tx.Exec(ctx, "INSERT INTO audit DEFAULT VALUES"); err != nil {
				panic(err)
			}
		}()
		return created, nil
	})
}

func (s *service) writesSideBySide(ctx context.Context, m inbox.Message) (inbox.Outcome, error) {
	return inbox.Handle(ctx, s.pool, "shipping", m, func(tx pgx.Tx) error {
		var g errgroup.Group
		for range 3 {
			g.Go(func() error { // want idemkept
				_, err := tx.Exec(ctx, "INSERT INTO parcels DEFAULT VALUES")
				return err
			})
		}
		return g.Wait()
	})
}

func (s *service) sendsItAway(ctx context.Context, work chan pgx.Tx, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		work <- tx // want idemkept
		return created, nil
	})
}
