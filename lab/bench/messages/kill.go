package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/pgserver/child"
	"github.com/idem-go/idem/lab/sidebyside"
)

// casualty is the outcome of the messages of a contestant whose process was killed, several times.
type casualty struct {
	name, promises string
	in             bool
	kills          int            // how often its process was under way when it was killed
	account        broker.Account // out
	made           int            // in: messages
	tallied
}

// atOnce is how many contestants have their processes killed at the same time: nobody looks at how long it takes.
const atOnce = 4

// kills has a process of each contestant work, kills it several times, and counts when another one has finished what it has left.
func kills(ctx context.Context, s *sidebyside.Server, r *results) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	each := func(name, promises string, in bool, run func(context.Context, *rand.Rand, *casualty) error) {
		c := &casualty{name: name, promises: promises, in: in}
		r.killed = append(r.killed, c)
		random := rand.New(rand.NewPCG(r.options.Seed, uint64(len(r.killed))))
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if err := run(ctx, random, c); err != nil {
				cancel(fmt.Errorf("%s: %w", name, err))
				return
			}
			if in {
				sidebyside.Say("killed     %-60s of %d: %d lost, %d doubled", name, c.made, c.lost, c.doubled)
			} else {
				sidebyside.Say("killed     %-60s %+v", name, c.account)
			}
		})
	}
	for _, c := range r.out {
		if !c.Silent && !c.Piped {
			each(c.Name, c.Promises, false, func(ctx context.Context, random *rand.Rand, found *casualty) error {
				return killOut(ctx, s, r.plan, c, random, found)
			})
		}
	}
	for _, c := range r.in {
		each(c.Name, c.Promises, true, func(ctx context.Context, random *rand.Rand, found *casualty) error {
			return killIn(ctx, s, r.plan, c, random, found)
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// lives starts processes one after the other, and kills each some time after it has done enough, at a moment that nothing in it
// depends on. One that has nothing left to do is the last.
func (c *casualty) lives(ctx context.Context, k kill, role role, random *rand.Rand, enough func(ctx context.Context) error) error {
	for range k.times {
		process, err := role.start()
		if err != nil {
			return err
		}
		living, cancel := alive(ctx, process, k.limit)
		err = enough(living)
		cancel()
		select {
		case <-time.After(time.Duration(random.Int64N(int64(50 * time.Millisecond)))):
		case <-ctx.Done():
		}
		select {
		case <-process.Done():
			return nil
		default:
		}
		process.Kill()
		if err != nil {
			return err
		}
		c.kills++
	}
	return nil
}

var errEnded = errors.New("a process has ended that was not killed")

// alive returns a context that ends with a process, or when it has taken too long.
func alive(ctx context.Context, process *child.Process, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("it takes too long"))
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-process.Done():
			end(errEnded)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func killOut(ctx context.Context, s *sidebyside.Server, p plan, c out.Contestant, random *rand.Rand, found *casualty) error {
	dsn, err := s.Database(ctx, out.Schema, c.Prepare)
	if err != nil {
		return err
	}
	sink := broker.NewSink()
	server, err := broker.Serve(sink, nil, p.kills.confirm)
	if err != nil {
		return err
	}
	defer server.Close()
	worker := role{Out: c.Name, DSN: dsn, Broker: server.Addr(), Clients: p.clients, Customers: p.customers, Pause: p.kills.pause, Pool: p.pool, Patience: p.kills.patience}
	err = found.lives(ctx, p.kills, worker, random, func(ctx context.Context) error { return sink.Await(ctx, sink.Distinct()+p.kills.between) })
	if err != nil {
		return err
	}
	if found.kills < p.kills.times {
		return errEnded
	}
	if err := quiet(ctx, s, dsn); err != nil {
		return err
	}
	committed, err := told(ctx, dsn)
	if err != nil {
		return err
	}
	if c.Relays { // another process finishes; nobody does so for the others
		worker.Clients = 0
		process, err := worker.start()
		if err != nil {
			return err
		}
		defer process.Kill()
		living, cancel := alive(ctx, process, p.kills.limit)
		defer cancel()
		if err := sink.AwaitOrRest(living, len(committed), p.kills.rest); err != nil {
			return err
		}
	}
	found.account = sink.Audit(committed)
	return nil
}

// quiet waits until nobody is connected to a database: a COMMIT that was under way is done, or will never be.
func quiet(ctx context.Context, s *sidebyside.Server, dsn string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	for {
		var n int
		if err := s.Admin.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = $1", config.Database).Scan(&n); err != nil || n == 0 {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func killIn(ctx context.Context, s *sidebyside.Server, p plan, c in.Contestant, random *rand.Rand, found *casualty) error {
	dsn, err := s.Database(ctx, in.Schema, c.Prepare)
	if err != nil {
		return err
	}
	source := broker.NewSource(p.kills.messages, 0)
	server, err := broker.Serve(nil, source, 0)
	if err != nil {
		return err
	}
	defer server.Close()
	worker := role{In: c.Name, DSN: dsn, Broker: server.Addr(), Workers: p.kills.workers, Batch: p.kills.batch, Pool: p.pool, Patience: p.kills.patience}
	err = found.lives(ctx, p.kills, worker, random, func(ctx context.Context) error { return source.AwaitAcked(ctx, source.Acked()+p.kills.between) })
	if err != nil {
		return err
	}
	process, err := worker.start()
	if err != nil {
		return err
	}
	defer process.Kill()
	living, cancel := alive(ctx, process, p.kills.limit)
	defer cancel()
	<-living.Done()
	if err := context.Cause(living); !errors.Is(err, errEnded) {
		return err
	}
	if left := source.Left(); left > 0 {
		return fmt.Errorf("%d deliveries were not acknowledged", left)
	}
	found.made = source.Made()
	found.tallied, err = tally(ctx, dsn, found.made)
	return err
}

// ofSide lists those who were killed on one side.
func (r *results) ofSide(in bool) []*casualty {
	return slices.DeleteFunc(slices.Clone(r.killed), func(c *casualty) bool { return c.in != in })
}
