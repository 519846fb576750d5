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

// Idem uses package operation with its default settings: the steps are a Tx, a Call with the policy
// Keyed, and another Tx. Every process runs a Worker, which resumes operations of dead processes.
var Idem = Contestant{Name: "idem operation", Prepare: schema.UpAt, Open: openIdem(operation.Keyed(24 * time.Hour))}

// IdemOnce works like Idem, with the policy Once, because its bank does not support keys. After a
// crash during a call, a Worker parks the operation, because it cannot know whether the bank
// has charged.
var IdemOnce = Contestant{
	Name: "idem operation, Once", Parks: "select count(*) from idem.operations where state = 'parked'",
	Prepare: schema.UpAt, Open: openIdem(operation.Once),
}

func openIdem(policy operation.Policy) func(context.Context, Place) (Do, error) {
	return func(_ context.Context, place Place) (Do, error) {
		definition := operation.Define("order", func(op *operation.Op, order string) (idem.Response, error) {
			return place.operate(op, order, policy)
		})
		ctx, stop := context.WithCancel(context.Background())
		worker := operation.NewWorker(place.Pool, operation.WorkerConfig{Logger: slog.New(slog.DiscardHandler)}, definition)
		var working sync.WaitGroup
		working.Go(func() { _ = worker.Run(ctx) })
		place.Cleanup(func() { stop(); working.Wait() })
		return func(ctx context.Context, order string) error {
			_, err := definition.Do(ctx, place.Pool, "tenant-1/POST /orders", order, idem.HashBytes([]byte(order)), order)
			return err
		}, nil
	}
}

func (p Place) operate(op *operation.Op, order string, policy operation.Policy) (idem.Response, error) {
	ctx := op.Context()
	_, err := operation.Tx(op, "reserve", func(tx pgx.Tx) (string, error) { return order, reserve(ctx, tx, order) })
	if err != nil {
		return idem.Response{}, err
	}
	charge, err := operation.Call(op, "charge", policy, func(ctx context.Context, key string) (string, error) {
		return p.Bank.Charge(ctx, order, key)
	})
	if err != nil {
		return idem.Response{}, err
	}
	_, err = operation.Tx(op, "confirm", func(tx pgx.Tx) (string, error) { return charge, confirm(ctx, tx, order, charge) })
	return idem.Response{Status: 201, Body: []byte(charge)}, err
}
