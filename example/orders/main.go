// Command orders is a small shop whose writes are safe to retry, and the demonstration that they are.
//
//	orders serve         a shop to try by hand, with a page, on 127.0.0.1:8080 unless -listen or ORDERS_LISTEN says otherwise
//	orders demo          two instances of the service and all that they need, a storm of retries and crashes, and the books afterwards
//
// Both take the address of a Postgres from DATABASE_URL, make a database beside it for fulfilment, and start these, each of which is a
// process of its own; `make serve` and `make demo` bring the Postgres, too.
//
//	orders service       the service
//	orders bank          its bank, with a ledger in a file
//	orders broker        a NATS server
//	orders fulfilment    ships what was ordered
//
// An order on account takes something from the stock and books an amount: one transaction. An order that is paid by card calls a
// bank in between, which no transaction of ours can roll back: an operation of three steps. Either way the transaction that writes
// the order adds a message to the outbox, which leaves over the broker; fulfilment ships, and tells the shop by a webhook.
//
// A client that gets no answer cannot know whether its order was placed, and asks again. With an Idempotency-Key it may: however often
// and wherever it asks, and whatever dies meanwhile, there is one order, one entry in the ledger, one charge, one shipment and one
// answer.
//
// Read it in this order:
//
//	handler.go     POST /orders and POST /checkouts under idemhttp: who is asking, and what is called
//	orders.go      what an order does to the tables, on the transaction that it is given
//	checkout.go    the three steps of an order that is paid by card, and what gives the stock back
//	payment.go     the call to the bank, and what each of its answers means
//	shipping.go    what fulfilment is told by the outbox, and what it tells by its webhook
//	service.go     what a process of the service runs besides: it goes on with what others have left, and relays the outbox
//	migrate.go     two sets of migrations, ours and idem's, side by side
//	neworder.go, tenant.go, problem.go, answer.go
//	               what any service needs besides
//	metrics.go     what is told to Prometheus, at GET /metrics
//	fulfilment/    the other service: it consumes each order once, and answers through an outbox of its own
//	event/         what the two tell each other
//	bank/          the bank: a ledger, and cards that make it misbehave
//	broker/        the broker, and how one connects to it
//	demo/          what goes wrong in real life, done on purpose and from outside, to clients of idemclient
//	serve.go       the shop to try by hand: all of these, restarted when they die, behind the page
//	page.go, page/ the page, on which to do by hand what the demo does
//	books.go       what it shows of the database
//	mishap.go      what it can ask to go wrong: around the service, which has no hook for it
//	commands.go, database.go, process/
//	               how the parts are started, and find each other
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
and, which these two start:
       orders service [-listen address]
       orders bank -ledger file [-listen address] [-slow duration]
       orders broker -store directory [-listen address]
       orders fulfilment [-listen address]`

// run returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errUsage
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			err = serveCommand(ctx, args[1:], stdout, stderr)
		case "demo":
			err = demoCommand(ctx, args[1:], stdout)
		case "service":
			err = serviceCommand(ctx, args[1:], stdout, stderr)
		case "bank":
			err = bankCommand(ctx, args[1:], stdout, stderr)
		case "broker":
			err = brokerCommand(ctx, args[1:], stdout, stderr)
		case "fulfilment":
			err = fulfilmentCommand(ctx, args[1:], stdout, stderr)
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
