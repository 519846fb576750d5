package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/pgserver/child"
	"github.com/idem-go/idem/lab/sidebyside"
)

// workerRole is the variable that makes this program a worker process, which gets killed.
const workerRole = "IDEM_BENCH_MESSAGES_WORKER"

// role is what a worker process is to do.
type role struct {
	In, Out     string // the contestant, of either side
	DSN, Broker string
	Clients     int // that place orders, beside the relay
	Customers   int
	Pause       time.Duration // of a client, after each order
	Workers     int           // that consume
	Batch       int
	Pool        int32
	Patience    time.Duration
}

// start runs this program again, in that role. It ends with this process.
func (r role) start() (*child.Process, error) { return sidebyside.Again(workerRole, r) }

// work is a worker process. One that relays goes on until it is killed, one that consumes until there are no more messages.
func work(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	ctx := context.Background()
	pool, err := openPool(ctx, r.DSN, r.Pool)
	if err != nil {
		return err
	}
	client, err := broker.Dial(r.Broker)
	if err != nil {
		return err
	}
	if c, ok := in.Named(r.In); ok {
		return c.Consume(ctx, in.Place{Pool: pool, Source: client, Workers: r.Workers, Batch: r.Batch, Patience: r.Patience})
	}
	c, ok := out.Named(r.Out)
	if !ok {
		return fmt.Errorf("there is no contestant %q or %q", r.In, r.Out)
	}
	runner, err := c.Open(out.Place{Pool: pool, Sink: client, Patience: r.Patience})
	if err != nil {
		return err
	}
	failed := make(chan error)
	if relayer, ok := runner.(out.Relayer); ok {
		go func() { failed <- fmt.Errorf("%s: the relay has ended: %w", c.Name, relayer.Relay(ctx)) }()
	}
	for range r.Clients {
		go func() {
			for {
				if err := runner.Place(ctx, out.NewOrder(1+rand.N(r.Customers))); err != nil {
					failed <- fmt.Errorf("%s: %w", c.Name, err)
					return
				}
				time.Sleep(r.Pause)
			}
		}()
	}
	return <-failed
}
