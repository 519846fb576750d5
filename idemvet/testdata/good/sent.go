package good

import (
	"context"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
)

type job struct {
	id  int
	run func(pgx.Tx) error
}

func (s *service) sendsAnID(ctx context.Context, work chan<- job, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		j := job{run: func(tx pgx.Tx) error { return tx.Conn().Ping(ctx) }}
		if err := tx.QueryRow(ctx, "INSERT INTO orders DEFAULT VALUES RETURNING id").Scan(&j.id); err != nil {
			return idem.Response{}, err
		}
		work <- j
		return created, nil
	})
}

func (s *service) sendsWhatItHasRead(ctx context.Context, work chan<- []int, m inbox.Message) (inbox.Outcome, error) {
	return inbox.Handle(ctx, s.pool, "shipping", m, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT id FROM orders")
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		work <- ids
		return err
	})
}

func (s *service) asksAGoroutine(ctx context.Context, prices func(context.Context) int, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		price := make(chan int, 1)
		var g errgroup.Group
		g.Go(func() error {
			price <- prices(ctx)
			return nil
		})
		if err := g.Wait(); err != nil {
			return idem.Response{}, err
		}
		_, err := tx.Exec(ctx, "INSERT INTO orders (price) VALUES ($1)", <-price)
		return created, err
	})
}

func (s *service) keepsTheErrorOfAQuery(ctx context.Context, scope, key string, hash idem.Hash) (err error) {
	var failed error
	_, err = idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		var rows pgx.Rows
		if rows, failed = tx.Query(ctx, "SELECT id FROM orders"); failed != nil {
			return idem.Response{}, failed
		}
		rows.Close()
		return created, rows.Err()
	})
	return err
}

func (s *service) callsWhatUsesIt(ctx context.Context, done chan<- struct{}, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		own := tx
		steps := []func() error{func() error { return s.queries.WithTx(own).CreateOrder(ctx, "teapot") }}
		for _, step := range steps {
			if err := step(); err != nil {
				return idem.Response{}, err
			}
		}
		done <- struct{}{}
		return created, nil
	})
}

func (s *service) sendsTheResult(ctx context.Context, results chan<- idem.Result, scope, key string, hash idem.Hash) error {
	result, err := idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, s.queries.WithTx(tx).CreateOrder(ctx, "teapot")
	})
	results <- result
	return err
}

func (s *service) givesItToAHelper(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, (unit{s.queries.WithTx(tx), tx}).order(ctx, s.queries.WithTx(tx))
	})
}

type unit struct {
	queries *Queries
	tx      pgx.Tx
}

func (u unit) order(ctx context.Context, q *Queries) error {
	if err := u.queries.CreateOrder(ctx, "teapot"); err != nil {
		return err
	}
	q = &Queries{u.tx}
	return q.CreateOrder(ctx, "cup")
}
