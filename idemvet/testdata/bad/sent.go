package bad

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/idemsql"
	"github.com/idem-go/idem/inbox"
)

type job struct {
	ctx context.Context
	tx  pgx.Tx
	run func() error
}

func (s *service) sendsItInAJob(ctx context.Context, work chan<- job, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		j := job{ctx: ctx, tx: tx}
		work <- j // want idemkept
		return created, nil
	})
}

func (s *service) sendsAJobOfIt(ctx context.Context, work chan<- *job, m inbox.Message) (inbox.Outcome, error) {
	return inbox.Handle(ctx, s.pool, "shipping", m, func(tx pgx.Tx) error {
		j := &job{ctx: ctx}
		j.tx = tx
		select {
		case work <- j: // want idemkept
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (s *service) sendsItByAnotherName(ctx context.Context, work chan<- *sql.Tx, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idemsql.Do(ctx, s.db, scope, key, hash, func(tx *sql.Tx) (idem.Response, error) {
		own := tx
		work <- own // want idemkept
		return created, nil
	})
}

func (s *service) sendsTheConnection(ctx context.Context, work chan<- *pgx.Conn, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		work <- tx.Conn() // want idemkept
		return created, nil
	})
}

func (s *service) sendsWhatUsesIt(ctx context.Context, work chan<- func() error, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		audit := func() error {
			_, err := tx.Exec(ctx, "INSERT INTO audit DEFAULT VALUES")
			return err
		}
		work <- audit // want idemkept
		return created, nil
	})
}

func (s *service) sendsItInAHelper(ctx context.Context, work chan<- job, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		return created, hand(ctx, work, tx)
	})
}

func hand(ctx context.Context, work chan<- job, tx pgx.Tx) error {
	done := make(chan error)
	work <- job{ctx: ctx, tx: tx, run: func() error { return nil }} // want idemkept
	return <-done
}

func (s *service) sendsQueriesOfIt(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		orders := make(chan *Queries, 1)
		go func() {
			for q := range orders {
				_ = q.CreateOrder(ctx, "teapot")
			}
		}()
		q := s.queries.WithTx(tx)
		orders <- q // want idemkept
		return created, nil
	})
}

func (s *service) startsWhatUsesIt(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		q := s.queries.WithTx(tx)
		go q.CreateOrder(ctx, "teapot") // want idemkept
		return created, nil
	})
}

func (s *service) sendsItByAQueue(ctx context.Context, q queue, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		q.push(job{ctx: ctx, tx: tx})
		return created, nil
	})
}

type queue chan job

func (q queue) push(j job) {
	q <- j // want idemkept
}
