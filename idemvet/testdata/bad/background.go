package bad

import (
	"context"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
)

func (s *service) waitsForASignal(w http.ResponseWriter, r *http.Request) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	_, err := idem.Do(ctx, s.pool, "orders", r.Header.Get("Idempotency-Key"), idem.HashBytes(nil), func(pgx.Tx) (idem.Response, error) { // want idemdeadline
		return created, nil
	})
	if err != nil {
		w.WriteHeader(http.StatusConflict)
	}
}

func (s *service) waitsForASignalWithAValue(ctx context.Context, d *operation.Definition[string], key string, hash idem.Hash) error {
	stopped, stop := signal.NotifyContext(context.TODO(), syscall.SIGTERM)
	defer stop()
	work, cancel := context.WithCancel(context.WithValue(stopped, scopeKey{}, "orders"))
	defer cancel()
	_, err := d.Do(work, s.pool, "orders", key, hash, "teapot") // want idemdeadline
	return err
}

func (s *service) writesUntilASignal(ctx context.Context, scope, key string, hash idem.Hash) (idem.Result, error) {
	return idem.Do(ctx, s.pool, scope, key, hash, func(tx pgx.Tx) (idem.Response, error) {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		_, err := tx.Exec(ctx, "INSERT INTO orders DEFAULT VALUES") // want idemdeadline
		return created, err
	})
}

func (s *service) writesInTheBackground(ctx context.Context, m inbox.Message) (inbox.Outcome, error) {
	return inbox.Handle(ctx, s.pool, "shipping", m, func(tx pgx.Tx) error {
		var n int
		return tx.QueryRow(context.Background(), "UPDATE stock SET n = n - 1 RETURNING n").Scan(&n) // want idemdeadline
	})
}

var writesWithoutTheOperation = operation.Define("background", func(op *operation.Op, in string) (idem.Response, error) {
	return created, operation.Exec(op, "order", func(tx pgx.Tx) error {
		ctx := context.TODO()
		_, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", in) // want idemdeadline
		return err
	})
})

func (s *service) bookUntilASignal(b bank) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		if _, err := b.Charge(ctx, r.PathValue("account"), 700); err != nil { // want idemdeadline
			w.WriteHeader(http.StatusBadGateway)
		}
	}
}
