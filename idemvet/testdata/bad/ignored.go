package bad

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
)

func (s *service) ignoresDoTx(ctx context.Context, tx pgx.Tx, scope, key string, hash idem.Hash) error {
	_, _ = idem.DoTx(ctx, tx, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) { // want idemignored
		return created, nil
	})
	return tx.Commit(ctx)
}

func (s *service) ignoresTheHash(ctx context.Context, scope, key string, body []byte) (idem.Result, error) {
	hash, _ := idem.HashJSON(body) // want idemignored
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) { return created, nil })
}

var ignoresTheUndo = operation.Define("undo", func(op *operation.Op, in string) (idem.Response, error) {
	operation.UndoTx(func(tx pgx.Tx, _ operation.None) error { return nil }) // want idemignored
	return created, step(op, "order")
})

func (s *service) ignoresADuplicateRow(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_, _ = tx.Exec(ctx, "INSERT INTO customers (email) VALUES ('you@example.com')") // want idemignored
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES")
		return created, err
	})
}

func (s *service) ignoresTheMessage(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		_ = outbox.Add(ctx, tx, outbox.Message{Topic: "orders"}) // want idemignored
		return created, nil
	})
}

func (s *service) ignoresWhetherItWasDone(ctx context.Context, scope, key string, hash idem.Hash) {
	go idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) { return created, nil }) // want idemignored
}
