package idemriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/operation"
)

// The example needs a database, so go test does not run it as one: TestExamplePrintsWhatItSays
// does.
var pool *pgxpool.Pool

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	bank := func(_ context.Context, key string) (string, error) { return "receipt 7", nil }

	checkout := idemriver.Define("checkout", func(op *operation.Op, sku string) (idem.Response, error) {
		receipt, err := operation.Call(op, "charge", operation.Keyed(23*time.Hour), bank)
		return idem.Response{Status: 201, Body: []byte(sku + ", " + receipt)}, err
	})
	checkout.InsertOpts = river.InsertOpts{Queue: "payments"}

	operations := idemriver.NewWorker(pool, idemriver.Config{}, checkout)
	workers := river.NewWorkers()
	river.AddWorker(workers, operations)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Workers: workers,
		Queues:  map[string]river.QueueConfig{"payments": {MaxWorkers: 10}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := client.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	watched := make(chan struct{})
	go func() { defer close(watched); operations.Watch(ctx, client) }()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := checkout.Start(ctx, client, tx, "tenant-1/checkout", "7f3c9a52-0d1e", idem.HashBytes([]byte("teapot")), "teapot")
		return err
	})
	fmt.Println(err)

	// A program that wants to know calls with the same key, and waits.
	res, err := checkout.Do(ctx, pool, "tenant-1/checkout", "7f3c9a52-0d1e", idem.HashBytes([]byte("teapot")), "teapot", idem.WithWait(time.Minute))
	fmt.Println(res.Status, string(res.Body), err)

	fmt.Println(client.Stop(ctx))
	cancel()
	<-watched
	// Prints:
	// <nil>
	// 201 teapot, receipt 7 <nil>
	// <nil>
}

func TestExamplePrintsWhatItSays(t *testing.T) {
	examples.Run(t, map[string]func(){"": Example}, func(t *testing.T, _ string) { _, pool = newDatabase(t) })
}
