// Command orders is a small shop whose writes are safe to retry, with a demonstration.
//
//	orders serve         a shop to try by hand, with a page, on 127.0.0.1:8080, or on the address in -listen or ORDERS_LISTEN
//	orders demo          two instances of the service with duplicates and crashes, and a check of all books afterward
//
// Both commands read the address of a Postgres database from DATABASE_URL and create a second
// database for fulfilment. `make serve` and `make demo` also start Postgres. Both commands start
// the parts below, each as a separate process:
//
//	orders service       the service
//	orders bank          its bank
//	orders broker        a NATS server
//	orders fulfilment    ships orders
//
// An order on account reduces the stock and adds a ledger entry, in one transaction. An order that
// is paid by card also calls a bank, and a call cannot be rolled back. Such an order is an
// operation of three steps. In both cases the transaction that writes the order also adds a message
// to the outbox. A relay sends the message to the broker. Fulfilment consumes the message, ships
// the order, and notifies the shop with a webhook.
//
// A client without an answer cannot know whether its order was placed, and retries. With an
// Idempotency-Key it can retry any number of times, at any instance, while any process crashes. The
// result is one order, one ledger entry, one charge, one shipment and one answer.
//
// Read the files in this order:
//
//	handler.go     POST /orders and POST /checkouts with idemhttp: authentication and routes
//	orders.go      the writes of an order, in the transaction that the caller passes
//	checkout.go    the three steps of an order that is paid by card, and the undo of the reservation
//	payment.go     the call to the bank, and the meaning of each of its answers
//	shipping.go    the message to fulfilment, and the webhook from fulfilment
//	service.go     the background work of a service process: resuming operations, relaying the outbox, purging
//	migrate.go     two sets of migrations, idem's and the service's
//	neworder.go, tenant.go, problem.go, answer.go
//	               parts that any HTTP service has
//	metrics.go     metrics for Prometheus, at GET /metrics
//	fulfilment/    the other service: it handles each order once, and replies through its own outbox
//	event/         the messages between the two services
//	bank/          the bank: a ledger, and test cards that cause failures
//	broker/        the broker, and how to connect to it
//	demo/          faults, injected from outside, while clients of idemclient place orders
//	serve.go       the shop to try by hand: all parts, restarted after a crash, behind the page
//	page.go, page/ the page
//	books.go       the database content that the page shows
//	mishap.go      the faults that the page can request; they wrap the service and need no hook in it
//	commands.go, database.go, process/
//	               how the parts are started and find each other
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

const usage = `usage: orders serve [-listen address] [-slow duration]
       orders demo
These two start the parts:
       orders service [-listen address]
       orders bank [-listen address] [-slow duration]
       orders broker -store directory [-listen address]
       orders fulfilment [-listen address]`

// run executes the command in args and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errUsage
	if len(args) > 0 && commands[args[0]] != nil {
		err = commands[args[0]](ctx, args[1:], stdout, stderr)
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
