package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/pgserver/child"
	"github.com/idem-go/idem/lab/sidebyside"
)

// workerRole is the variable that makes this program a worker process, which gets killed.
const workerRole = "IDEM_BENCH_OPERATIONS_WORKER"

// role is what a worker process is to do.
type role struct {
	Contestant string
	DSN, Bank  string
	Worker     int
	Operations int
	Pool       int32
	Patience   time.Duration
}

// start runs this program again, in that role. It ends with this process.
func (r role) start() (*child.Process, error) { return sidebyside.Again(workerRole, r) }

// work is a worker process: it makes its operations, all at once, and then works on whatever comes.
func work(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	c, ok := contestant.Named(r.Contestant)
	if !ok {
		return fmt.Errorf("there is no contestant %q", r.Contestant)
	}
	ctx := context.Background()
	b, err := openBooth(ctx, c, contestant.Place{DSN: r.DSN, Worker: r.Worker, Fleet: true, Patience: r.Patience}, r.Bank, r.Pool)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	failed := make(chan error, 1)
	for range r.Operations {
		group.Go(func() {
			if err := b.Do(ctx, newOrder()); err != nil && c.Parks == "" {
				select {
				case failed <- fmt.Errorf("%s: %w", c.Name, err):
				default:
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	select {} // until it is killed
}

// fleet are the worker processes of a contestant.
type fleet struct {
	roles     []role
	processes []*child.Process
}

func startFleet(c contestant.Contestant, dsn, bank string, p plan) (*fleet, error) {
	f := &fleet{}
	for worker := range p.workers {
		r := role{Contestant: c.Name, DSN: dsn, Bank: bank, Worker: worker, Operations: p.each, Pool: 10, Patience: p.patience}
		process, err := r.start()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.roles, f.processes = append(f.roles, r), append(f.processes, process)
	}
	return f, nil
}

// lost cancels ctx's child when a worker has ended that was not killed.
func (f *fleet) lost(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	for _, process := range f.processes {
		go func() {
			select {
			case <-process.Done():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// restart starts a worker again that was killed, with no operations of its own.
func (f *fleet) restart(worker int) error {
	r := f.roles[worker]
	r.Operations = 0
	process, err := r.start()
	if err == nil {
		f.processes[worker] = process
	}
	return err
}

// Close kills all of them.
func (f *fleet) Close() error {
	for _, process := range f.processes {
		process.Kill()
	}
	return nil
}
