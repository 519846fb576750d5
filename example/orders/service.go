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

// addresses are the addresses and secrets that a service process needs.
type addresses struct{ database, bank, broker, webhookSecret string }

// runService runs one process of the service until ctx ends. It then waits for the requests in
// progress, and after that for the checkouts that continue without a client.
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

// startWorking starts the background work of a service process and returns a function that stops
// it. A Worker resumes the checkouts of crashed processes. A relay sends the messages in the outbox
// to the broker. A purge deletes expired rows of idem. Every process of the service runs all three:
// they coordinate through the database.
func (s *service) startWorking(ctx context.Context, publisher outbox.Publisher) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	relay := outbox.NewRelay(s.pool, publisher, outbox.RelayConfig{Observer: s.metrics.observer})
	worker := operation.NewWorker(s.pool, operation.WorkerConfig{}, s.checkouts)
	working.Go(func() { _ = worker.Run(ctx) }) // Run logs errors and retries
	working.Go(func() { _ = relay.Run(ctx) })
	working.Go(func() { _ = purge.Run(ctx, s.pool, purge.Options{}) })
	return func() { cancel(); working.Wait() }
}

// finish waits for the checkouts in progress, for at most shutdownLimit. Another process resumes
// the checkouts that have not finished by then.
func (s *service) finish(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	if err := s.placing.Shutdown(bounded); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// open connects to a database, applies all migrations and returns the pool.
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

// shutdownLimit is how long a request in progress may take to finish. After that its connection is
// closed, its transaction is rolled back, and the client retries.
const shutdownLimit = 10 * time.Second

// listenAndServe serves handler on address until ctx ends, then shuts the server down. It prints
// the address and hint to out. Programs read the first line, people the rest.
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
	fmt.Fprintf(out, "listening on http://%[1]s\n"+hint, listener.Addr())
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

// serviceHint is printed at the start and shows commands to try.
const serviceHint = "\nAn order. Send it twice: the second answer repeats the first and has the header Idempotency-Replayed.\n\n  " + curlOrder + "4900}'\n\n" +
	"Another order with the same key. It is refused.\n\n  " + curlOrder + "5900}'\n\n" +
	"The list of orders.\n\n  curl http://%[1]s/orders -H 'Authorization: Bearer acme-key'\n\n"
