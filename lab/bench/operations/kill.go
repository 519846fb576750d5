package operations

import (
	"cmp"
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
	"github.com/idem-go/idem/outbox"
)

// kill describes a measurement in which several processes run operations, and one process is killed
// while its calls to the bank are in progress.
type kill struct {
	workers, each int // number of processes, and number of operations per process
	// patience is the maximum duration of a call. Contestants that detect a dead process by a
	// timeout use it as the timeout. limit is how long the measurement waits after the kill for the
	// operations to end.
	patience, limit time.Duration
}

// measure starts several processes that run operations of the contestant c. The bank holds back its
// answers until all operations have called it. Then measure kills one process, and the bank answers
// the other processes at random times within a few seconds. The result contains the times at which
// the bank was called again for operations of the dead process, and the numbers of confirmed and
// parked operations.
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
	processes := make([]*child.Process, k.workers)
	defer func() {
		for _, process := range processes {
			if process != nil {
				process.Kill()
			}
		}
	}()
	start := func(worker, operations int) (err error) {
		processes[worker], err = runner.Again(workerKind, role{c.Name, dsn, other.URL, worker, operations, k.patience})
		return err
	}
	for worker := range processes {
		if err := start(worker, k.each); err != nil {
			return nil, err
		}
	}
	if err := k.inProgress(ctx, other, processes); err != nil {
		return nil, err
	}
	victim, orders := k.choose(other.Attempts())
	killed := time.Now()
	processes[victim].Kill()
	if c.Restarts {
		if err := start(victim, 0); err != nil {
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

// calledAgain waits until the bank was called again for each order in orders, for at most k.limit.
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

// choose returns the number of the process to kill, and the orders of that process. It chooses the
// process whose number of operations is nearest to k.each.
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

// since returns, for each order for which the bank was called again, the time from the kill to that
// call. The result is sorted.
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

// settle waits until all orders are confirmed or parked, for at most k.limit.
func (k kill) settle(ctx context.Context, dsn, parks string) (confirmed, parked int, err error) {
	query := "select count(confirmed_at), (" + cmp.Or(parks, "select 0") + ") from orders"
	for deadline := time.Now().Add(k.limit); ; {
		err := runner.Scan(ctx, dsn, query, &confirmed, &parked)
		if err != nil || confirmed+parked == k.workers*k.each || time.Now().After(deadline) {
			return confirmed, parked, err
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
	Contestant, DSN, Bank string
	Worker, Operations    int
	Patience              time.Duration
}

const workerKind = "operations"

// Work runs the worker and exits, if this process was started as a worker process of package
// operations. Otherwise it returns at once. See runner.Work.
func Work() { runner.Work(workerKind, work) }

// work is the main function of a worker process. It starts all operations of the process at the
// same time. When they have returned, the process keeps running until it is killed, so that its
// contestant can resume the operations of other processes.
func work(r role) error {
	ctx := context.Background()
	all := contestant.Resuming
	c := all[slices.IndexFunc(all, func(c contestant.Contestant) bool { return c.Name == r.Contestant })]
	b, err := openBooth(ctx, c, contestant.Place{DSN: r.DSN, Worker: r.Worker, Fleet: true, Patience: r.Patience}, r.Bank, 10)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	failed := make(chan error, r.Operations)
	for range r.Operations {
		group.Go(func() {
			if err := b.do(ctx, outbox.NewID()); err != nil && c.Parks == "" {
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

// inProgress waits until the bank has received the calls of all operations. It fails after a
// minute, or if a process ends.
func (k kill) inProgress(ctx context.Context, other *bank.Bank, processes []*child.Process) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, process := range processes {
		go func() {
			select {
			case <-process.Done():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	operations := k.workers * k.each
	err := other.Await(ctx, func(attempts map[string][]bank.Attempt) bool { return len(attempts) >= operations })
	if err != nil {
		return fmt.Errorf("%d of %d operations have come to their call: %w", len(other.Attempts()), operations, err)
	}
	return nil
}
