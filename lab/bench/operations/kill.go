package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/bench/operations/bank"
	"github.com/idem-go/idem/lab/bench/operations/contestant"
	"github.com/idem-go/idem/lab/sidebyside"
)

// resumption is the outcome of the operations of a process that was killed while the bank was charging.
type resumption struct {
	contestant contestant.Contestant
	victims    int             // operations that were under way in it
	after      []time.Duration // sorted: from the kill until the bank was called again, of those that it was
	charged    int             // orders that were charged more than once, of the killed process or of any other
	called     int             // orders for which it was called more than once: what happens at a bank without keys
	orders     int
	confirmed  int // when it was over
	parked     int
}

// kills has processes with operations under way, all of them in their call, and kills one. Then the bank answers the others within
// some seconds, and looks when it is called again for those of the process that is dead.
func kills(ctx context.Context, s *server, r *results) error {
	p := r.plan
	all := slices.Clone(r.contestants)
	if slices.ContainsFunc(all, func(c contestant.Contestant) bool { return c.Name == contestant.Idem().Name }) {
		all = append(all, contestant.IdemOnce())
	}
	for _, c := range all {
		if c.Resumes == "" {
			continue
		}
		found, err := kill(ctx, s, p, c)
		if err != nil {
			return fmt.Errorf("resume of %s: %w", c.Name, err)
		}
		sidebyside.Say("%-24s of %d operations %d went on, p50 %v, p99 %v; %d of %d confirmed, %d parked, %d charged twice, %d called twice", c.Name, found.victims, len(found.after),
			sidebyside.Quantile(found.after, 0.5).Round(time.Millisecond), sidebyside.Quantile(found.after, 0.99).Round(time.Millisecond), found.confirmed, found.orders, found.parked, found.charged, found.called)
		r.Kills = append(r.Kills, found)
	}
	return nil
}

// slow is how long the bank takes to answer all that it holds after the kill.
func (p plan) slow() time.Duration { return min(3*time.Second, p.patience/4) }

func kill(ctx context.Context, s *server, p plan, c contestant.Contestant) (*resumption, error) {
	dsn, err := s.database(ctx, c)
	if err != nil {
		return nil, err
	}
	other, err := bank.Open(0, c.Parks != "")
	if err != nil {
		return nil, err
	}
	defer other.Close()
	other.Hold()
	fleet, err := startFleet(c, dsn, other.URL, p)
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	if err := fleet.underWay(ctx, other, p); err != nil {
		return nil, err
	}
	victim, victims := choose(other.Attempts(), p)
	killed := time.Now()
	fleet.processes[victim].Kill()
	if c.Restarts {
		if err := fleet.restart(victim); err != nil {
			return nil, err
		}
	}
	other.Release(p.slow())
	if c.Parks == "" { // otherwise nobody is to call again
		if err := calledAgain(ctx, other, killed, victims, p); err != nil {
			return nil, err
		}
	}
	found := &resumption{contestant: c, victims: len(victims), orders: p.workers * p.each}
	if err := found.settle(ctx, dsn, p); err != nil {
		return nil, err
	}
	found.after = since(killed, other.Attempts(), victims)
	found.charged = other.Books().Twice
	for _, attempts := range other.Attempts() {
		if len(attempts) > 1 {
			found.called++
		}
	}
	return found, nil
}

// underWay returns when all operations have come to their call.
func (f *fleet) underWay(ctx context.Context, other *bank.Bank, p plan) error {
	total := p.workers * p.each
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	starting, stop := f.lost(starting)
	defer stop()
	err := other.Await(starting, func(attempts map[string][]bank.Attempt) bool { return len(attempts) >= total })
	if err != nil {
		return fmt.Errorf("%d of %d operations have come to their call: %w", len(other.Attempts()), total, err)
	}
	return nil
}

// calledAgain returns when the bank was called again for all of the orders, or that takes too long.
func calledAgain(ctx context.Context, other *bank.Bank, killed time.Time, orders []string, p plan) error {
	waiting, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	err := other.Await(waiting, func(attempts map[string][]bank.Attempt) bool {
		return len(since(killed, attempts, orders)) == len(orders)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, ctx.Err())
}

// choose returns the process to kill, the one whose number of operations is nearest to what each was given, and what it
// works on.
func choose(attempts map[string][]bank.Attempt, p plan) (victim int, orders []string) {
	of := make([][]string, p.workers)
	for order, all := range attempts {
		worker := all[len(all)-1].Worker
		of[worker] = append(of[worker], order)
	}
	for worker := range of {
		if away(len(of[worker]), p.each) < away(len(of[victim]), p.each) {
			victim = worker
		}
	}
	return victim, of[victim]
}

func away(a, b int) int { return max(a-b, b-a) }

// since returns how long after the kill the bank was called again for each of the orders, sorted.
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

// settle waits until all orders are confirmed or parked, or that takes too long.
func (r *resumption) settle(ctx context.Context, dsn string, p plan) (err error) {
	for deadline := time.Now().Add(p.limit); ; {
		if _, r.confirmed, err = countOrders(ctx, dsn); err != nil {
			return err
		}
		if r.contestant.Parks != "" {
			if r.parked, err = sidebyside.Count(ctx, dsn, r.contestant.Parks); err != nil {
				return err
			}
		}
		if r.confirmed+r.parked == r.orders || time.Now().After(deadline) {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
