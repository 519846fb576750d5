package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/example/orders/broker"
	"github.com/idem-go/idem/example/orders/fulfilment"
	"github.com/idem-go/idem/webhook"
)

// runFulfilment runs one process of fulfilment until ctx ends, or until the listener, the consumer
// or the relay fails.
func runFulfilment(ctx context.Context, databaseURL, brokerURL string, shop webhook.Endpoint, address string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrateBoth(ctx, pool, fulfilment.Migrations(), "fulfilment_goose_version"); err != nil {
		return err
	}
	js, err := broker.Connect(brokerURL)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	f, err := fulfilment.New(ctx, pool, js, shop)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = f.Run(ctx); stop() })
	// Fulfilment serves no requests. The listener only reports the address, which signals that the
	// process is ready.
	err = listenAndServe(ctx, address, http.NotFoundHandler(), out, "")
	stop()
	running.Wait()
	return errors.Join(err, failed)
}
