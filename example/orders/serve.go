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

	"github.com/idem-go/idem/purge"
)

// serve runs the service until ctx ends, and then lets the requests it has begun finish.
func serve(ctx context.Context, databaseURL, address string, out io.Writer) error {
	pool, err := open(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	metrics, err := newMetrics(pool)
	if err != nil {
		return err
	}
	defer metrics.stop()
	credentials := demoCredentials()
	service, err := newHandler(pool, credentials, metrics)
	if err != nil {
		return err
	}
	defer startPurging(ctx, pool)()
	return listenAndServe(ctx, address, withPage(pool, credentials, service), out)
}

// startPurging deletes what idem need not keep any more, until stop is called. Every instance of the service does so, and one
// works at a time.
func startPurging(ctx context.Context, pool *pgxpool.Pool) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var purging sync.WaitGroup
	purging.Go(func() { _ = purge.Run(ctx, pool, purge.Options{}) }) // what goes wrong is logged, and tried again
	return func() { cancel(); purging.Wait() }
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

func listenAndServe(ctx context.Context, address string, handler http.Handler, out io.Writer) error {
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
	announce(out, listener.Addr())
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

// announce tells that connections are accepted from here on: programs read its first line, people the rest.
func announce(out io.Writer, address net.Addr) {
	const order = `curl -i http://%[1]s/orders -H 'Authorization: Bearer acme-key' -H 'Idempotency-Key: my-first-order' ` +
		`-H 'Content-Type: application/json' -d '{"sku":"teapot","quantity":1,"amount_cents":%[2]d,"currency":"EUR"}'`
	fmt.Fprintf(out, "listening on http://%[1]s\n\n"+
		"Open it in a browser: a shop, and what it leaves in Postgres. Or by hand:\n\n"+
		"An order. Send it twice: the second answer is the first, marked Idempotency-Replayed.\n\n  "+order+"\n\n", address, 4900)
	fmt.Fprintf(out, "Another order with the same key: refused.\n\n  "+order+"\n\n", address, 5900)
	fmt.Fprintf(out, "What has been ordered.\n\n  curl http://%[1]s/orders -H 'Authorization: Bearer acme-key'\n\n", address)
}
