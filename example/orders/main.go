// Command orders is a small service whose POST /orders is safe to retry, and the demonstration that it is.
//
//	orders serve    the service, on 127.0.0.1:8080 unless -listen or ORDERS_LISTEN says otherwise, with a page to try it on
//	orders demo     two instances of it, a storm of retries and crashes, and the books afterwards
//
// Both take the address of a Postgres from DATABASE_URL; `make serve` and `make demo` bring one.
//
// An order takes something from the stock and books an amount. A client that gets no answer cannot know whether that has
// happened, and asks again. With an Idempotency-Key it may: however often and wherever it asks, there is one order, one
// entry in the ledger and one answer.
//
// Read it in this order:
//
//	handler.go     POST /orders under idemhttp: who is asking, and the one call that places an order
//	orders.go      what an order does to the tables, on the transaction that idemhttp hands out
//	migrate.go     two sets of migrations, ours and idem's, side by side
//	neworder.go, tenant.go, problem.go, answer.go, serve.go
//	               what any service needs besides
//	metrics.go     what is told to Prometheus, at GET /metrics
//	demo/          what goes wrong in real life, done on purpose and from outside, to clients of idemclient
//	page.go, page/ the page: a shop on which to do the same by hand
//	books.go       what it shows of the database
//	mishap.go      what it can ask to go wrong: around the service, which has no hook for it
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/idem-go/idem/example/orders/demo"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = "usage: orders serve [-listen address] | orders demo"

// run returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errUsage
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			err = runServe(ctx, args[1:], stdout, stderr)
		case "demo":
			err = runDemo(ctx, args[1:], stdout)
		}
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(stderr, usage)
		return 2
	}
	fmt.Fprintf(stderr, "orders: %v\n", err)
	return 1
}

var errUsage = errors.New("usage")

func runServe(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("orders serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", cmp.Or(os.Getenv("ORDERS_LISTEN"), "127.0.0.1:8080"),
		"`address` to listen on, also from ORDERS_LISTEN; port 0 picks one")
	if err := flags.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	if flags.NArg() > 0 {
		return errUsage
	}
	databaseURL, err := databaseURL()
	if err != nil {
		return err
	}
	return serve(ctx, databaseURL, *listen, stdout)
}

func runDemo(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) > 0 {
		return errUsage
	}
	databaseURL, err := databaseURL()
	if err != nil {
		return err
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	return demo.Run(ctx, demo.Config{
		Service:     []string{executable, "serve", "-listen", "127.0.0.1:0"},
		DatabaseURL: databaseURL,
		Out:         stdout,
	})
}

func databaseURL() (string, error) {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return url, nil
	}
	return "", errors.New("DATABASE_URL is not set: use `make serve` or `make demo`, or point it at a Postgres of your own")
}
