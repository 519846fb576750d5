package contestant

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/operation"
)

// Idem is package operation: Tx, Call with Keyed, Tx, and a Worker in every process, with default
// settings.
func Idem() Contestant {
	c := idemContestant(operation.Keyed(24 * time.Hour))
	c.Name = "idem operation"
	return c
}

// IdemOnce is Idem with a bank that does not support keys: a Worker parks a call in doubt.
func IdemOnce() Contestant {
	c := idemContestant(operation.Once)
	c.Name, c.Parks = "idem operation, Once", "select count(*) from idem.operations where state = 'parked'"
	return c
}

func idemContestant(policy operation.Policy) Contestant {
	return Contestant{
		Prepare: schema.UpAt,
		Open: func(_ context.Context, place Place) (Runner, error) {
			r := &idemRunner{Place: place}
			r.order = operation.Define("order", func(op *operation.Op, order string) (idem.Response, error) { return r.run(op, order, policy) })
			ctx, stop := context.WithCancel(context.Background())
			r.stop = stop
			worker := operation.NewWorker(place.Pool, operation.WorkerConfig{Logger: slog.New(slog.DiscardHandler)}, r.order)
			r.working.Go(func() { r.err = worker.Run(ctx) })
			return r, nil
		},
	}
}

type idemRunner struct {
	Place
	order   *operation.Definition[string]
	stop    func()
	working sync.WaitGroup
	err     error
}

func (r *idemRunner) run(op *operation.Op, order string, policy operation.Policy) (idem.Response, error) {
	ctx := op.Context()
	_, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (string, error) { return order, reserve(ctx, tx, order) })
	if err != nil {
		return idem.Response{}, err
	}
	charge, err := operation.Call(op, "charge", policy, func(ctx context.Context, key string) (string, error) {
		return r.Bank.Charge(ctx, order, key)
	})
	if err != nil {
		return idem.Response{}, err
	}
	_, err = operation.Tx(op, "confirm", func(tx pgx.Tx) (string, error) { return charge, confirm(ctx, tx, order, charge) })
	return idem.Response{Status: 201, Body: []byte(charge)}, err
}

func (r *idemRunner) Do(ctx context.Context, order string) error {
	_, err := r.order.Do(ctx, r.Pool, "tenant-1/POST /orders", order, idem.HashBytes([]byte(order)), order)
	return err
}

func (r *idemRunner) Close() {
	r.stop()
	r.working.Wait()
}
