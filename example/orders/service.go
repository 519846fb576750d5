package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/adapter/idemnats"
	"github.com/idem-go/idem/example/orders/broker"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/purge"
)

// addresses are where a service finds what it needs.
type addresses struct{ database, bank, broker, webhookSecret string }

// runService is one process of the service, until ctx ends. Then it lets what it has begun finish: requests first, and behind them
// the checkouts that no client waits for any more.
func runService(ctx context.Context, at addresses, address string, out io.Writer) error {
	pool, err := open(ctx, at.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	js, err := broker.Connect(at.broker)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	metrics, err := newMetrics(pool)
	if err != nil {
		return err
	}
	defer metrics.stop()
	service, err := newService(pool, demoCredentials(), newPayments(at.bank), at.webhookSecret, metrics)
	if err != nil {
		return err
	}
	defer service.startWorking(ctx, idemnats.NewPublisher(js, idemnats.PublisherConfig{}))()
	return errors.Join(listenAndServe(ctx, address, service, out, serviceHint), service.finish(ctx))
}

// startWorking does what no request asks for, until stop is called. Every process of the service does: one of them goes on with the
// checkouts that another has left when it died, one hands what is in the outbox to the broker, and one deletes what idem need not keep
// any more.
func (s *service) startWorking(ctx context.Context, publisher outbox.Publisher) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	relay := outbox.NewRelay(s.pool, publisher, outbox.RelayConfig{Observer: s.metrics.observer})
	worker := operation.NewWorker(s.pool, operation.WorkerConfig{}, s.checkouts)
	working.Go(func() { _ = worker.Run(ctx) })                         // what goes wrong is logged, and tried again
	working.Go(func() { _ = relay.Run(ctx) })                          // as here
	working.Go(func() { _ = purge.Run(ctx, s.pool, purge.Options{}) }) // as here
	return func() { cancel(); working.Wait() }
}

// finish waits for the checkouts under way. What is not finished in time is for whichever process goes on with it.
func (s *service) finish(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	if err := s.underWay.Shutdown(bounded); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// open returns a pool on a database whose schema is current.
func open(ctx context.Context, databaseURL string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// shutdownLimit is how long a request under way may take to finish. One that is cut off by it is rolled back, and its
// client asks again.
const shutdownLimit = 10 * time.Second

func listenAndServe(ctx context.Context, address string, handler http.Handler, out io.Writer, hint string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      answerLimit + 5*time.Second,
		IdleTimeout:       time.Minute,
	}
	fmt.Fprintf(out, "listening on http://%[1]s\n"+hint, listener.Addr()) // programs read the first line, people the rest
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	return errors.Join(server.Shutdown(bounded), server.Close())
}

const curlOrder = `curl -i http://%[1]s/orders -H 'Authorization: Bearer acme-key' -H 'Idempotency-Key: my-first-order' ` +
	`-H 'Content-Type: application/json' -d '{"sku":"teapot","quantity":1,"currency":"EUR","amount_cents":`

// serviceHint is what people are told to try.
const serviceHint = "\nAn order. Send it twice: the second answer is the first, marked Idempotency-Replayed.\n\n  " + curlOrder + "4900}'\n\n" +
	"Another order with the same key: refused.\n\n  " + curlOrder + "5900}'\n\n" +
	"What has been ordered.\n\n  curl http://%[1]s/orders -H 'Authorization: Bearer acme-key'\n\n"
