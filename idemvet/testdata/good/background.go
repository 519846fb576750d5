package good

import (
	"context"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

func (s *service) stopsByASignalToo(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
}

func (s *service) stopsByASignalOrInTime(scope, key string, hash idem.Hash) (idem.Result, error) {
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(stopped, time.Minute)
	defer cancel()
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
}

func (s *service) servesUntilASignal(work *operation.Worker, server *http.Server) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Shutdown(context.Background()) })
	return work.Run(ctx)
}

func (s *service) undoesTheSavepointAnyway(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		try, err := tx.Begin(ctx)
		if err != nil {
			return idem.Response{}, err
		}
		defer func() { _ = try.Rollback(context.Background()) }()
		if _, err := try.Exec(ctx, "INSERT INTO orders DEFAULT VALUES"); err != nil {
			return idem.Response{}, err
		}
		return created, try.Commit(ctx)
	})
}

func (s *service) goesOnWithoutTheClient(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return idem.Do(own, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(own, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
}

func (s *service) seeds(scope, key string, hash idem.Hash) (idem.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(context.Background(), "INSERT INTO orders DEFAULT VALUES") // the function has no context of a caller
		return created, err
	})
}
