package operations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// kill describes how many processes run. One of them is killed while the bank charges.
type kill struct {
	workers, each int // number of processes, and of operations per process
	// patience is the maximum duration of a call, for contestants that detect a dead process by a
	// timeout. limit is how long the measurement waits for the contestant after the kill.
	patience, limit time.Duration
}

// measure starts processes with operations in progress, waits until all of these are in their call,
// and kills one process. The bank then answers the others within some seconds. It records when it
// is called again for the operations of the dead process.
func (k kill) measure(ctx context.Context, s *runner.Server, c contestant.Contestant) (result.Values, error) {
	dsn, err := s.Database(ctx, contestant.Schema, c.Prepare)
	if err != nil {
		return nil, err
	}
	parks := c.Parks != ""
	other, err := bank.Open(0, parks)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	other.Hold()
	fleet, err := k.startFleet(c, dsn, other.URL)
	if err != nil {
		return nil, err
	}
	defer fleet.kill()
	if err := fleet.inProgress(ctx, other, k.workers*k.each); err != nil {
		return nil, err
	}
	victim, orders := k.choose(other.Attempts())
	killed := time.Now()
	fleet.processes[victim].Kill()
	if c.Restarts {
		if err := fleet.restart(victim); err != nil {
			return nil, err
		}
	}
	other.Release(min(3*time.Second, k.patience/4))
	if !parks {
		if err := k.calledAgain(ctx, other, killed, orders); err != nil {
			return nil, err
		}
	}
	confirmed, parked, err := k.settle(ctx, dsn, c.Parks)
	if err != nil {
		return nil, err
	}
	after := since(killed, other.Attempts(), orders)
	values := result.Values{
		"orders": float64(k.workers * k.each), "confirmed": float64(confirmed), "parked": float64(parked), "charged_twice": float64(other.Books().Twice),
		"victims": float64(len(orders)), "resumed": float64(len(after)), "asked_twice": 0,
	}
	if len(after) > 0 {
		values["resumed_p50_ms"], values["resumed_p99_ms"] = runner.Micros(after, 0.5)/1e3, runner.Micros(after, 0.99)/1e3
	}
	for _, attempts := range other.Attempts() {
		if len(attempts) > 1 {
			values["asked_twice"]++
		}
	}
	return values, nil
}

// calledAgain waits until the bank was called again for all orders, but at most k.limit.
func (k kill) calledAgain(ctx context.Context, other *bank.Bank, killed time.Time, orders []string) error {
	waiting, cancel := context.WithTimeout(ctx, k.limit)
	defer cancel()
	err := other.Await(waiting, func(attempts map[string][]bank.Attempt) bool {
		return len(since(killed, attempts, orders)) == len(orders)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, ctx.Err())
}

// choose returns the process to kill and its orders. It takes the process whose number of
// operations is nearest to k.each.
func (k kill) choose(attempts map[string][]bank.Attempt) (victim int, orders []string) {
	of := make([][]string, k.workers)
	for order, all := range attempts {
		worker := all[len(all)-1].Worker
		of[worker] = append(of[worker], order)
	}
	distance := func(worker int) int { return max(len(of[worker])-k.each, k.each-len(of[worker])) }
	for worker := range of {
		if distance(worker) < distance(victim) {
			victim = worker
		}
	}
	return victim, of[victim]
}

// since returns, for each order that was called again, the time from the kill to that call. The
// result is sorted.
func since(killed time.Time, attempts map[string][]bank.Attempt, orders []string) (after []time.Duration) {
	for _, order := range orders {
		for _, a := range attempts[order] {
			if a.At.After(killed) {
				after = append(after, a.At.Sub(killed))
				break
			}
		}
	}
	slices.Sort(after)
	return after
}

// settle waits until all orders are confirmed or parked, but at most k.limit.
func (k kill) settle(ctx context.Context, dsn, parks string) (confirmed, parked int, err error) {
	for deadline := time.Now().Add(k.limit); ; {
		if _, confirmed, err = countOrders(ctx, dsn); err != nil {
			return 0, 0, err
		}
		if parks != "" {
			if parked, err = runner.Count(ctx, dsn, parks); err != nil {
				return 0, 0, err
			}
		}
		if confirmed+parked == k.workers*k.each || time.Now().After(deadline) {
			return confirmed, parked, nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		}
	}
}

// role is the configuration of a worker process.
type role struct {
	Contestant string
	DSN, Bank  string
	Worker     int
	Operations int
	Patience   time.Duration
}

const workerKind = "operations"

// Work runs this process as a worker if it was started as one. See runner.Work.
func Work() { runner.Work(workerKind, work) }

// work starts the operations of a worker process at the same time. Afterward the process continues
// with the operations of others until it is killed.
func work(r role) error {
	ctx := context.Background()
	all := contestant.Resuming()
	c := all[slices.IndexFunc(all, func(c contestant.Contestant) bool { return c.Name == r.Contestant })]
	b, err := openBooth(ctx, c, contestant.Place{DSN: r.DSN, Worker: r.Worker, Fleet: true, Patience: r.Patience}, r.Bank, 10)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	failed := make(chan error, r.Operations)
	for range r.Operations {
		group.Go(func() {
			if err := b.Do(ctx, newOrder()); err != nil && c.Parks == "" {
				failed <- fmt.Errorf("%s: %w", c.Name, err)
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		select {}
	}
}

// fleet is the set of worker processes of a contestant.
type fleet struct {
	roles     []role
	processes []*child.Process
}

func (k kill) startFleet(c contestant.Contestant, dsn, bank string) (*fleet, error) {
	f := &fleet{}
	for worker := range k.workers {
		r := role{Contestant: c.Name, DSN: dsn, Bank: bank, Worker: worker, Operations: k.each, Patience: k.patience}
		process, err := runner.Again(workerKind, r)
		if err != nil {
			f.kill()
			return nil, err
		}
		f.roles, f.processes = append(f.roles, r), append(f.processes, process)
	}
	return f, nil
}

// inProgress waits until the bank has received the calls of that many operations. It fails if a
// process ends or after a minute.
func (f *fleet) inProgress(ctx context.Context, other *bank.Bank, operations int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, process := range f.processes {
		go func() {
			select {
			case <-process.Done():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	err := other.Await(ctx, func(attempts map[string][]bank.Attempt) bool { return len(attempts) >= operations })
	if err != nil {
		return fmt.Errorf("%d of %d operations have come to their call: %w", len(other.Attempts()), operations, err)
	}
	return nil
}

// restart restarts a killed worker without new operations.
func (f *fleet) restart(worker int) error {
	r := f.roles[worker]
	r.Operations = 0
	process, err := runner.Again(workerKind, r)
	if err == nil {
		f.processes[worker] = process
	}
	return err
}

func (f *fleet) kill() {
	for _, process := range f.processes {
		process.Kill()
	}
}
