package messages

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/bench/messages/broker"
	"github.com/idem-go/idem/lab/bench/messages/in"
	"github.com/idem-go/idem/lab/bench/messages/out"
	"github.com/idem-go/idem/lab/bench/result"
	"github.com/idem-go/idem/lab/bench/runner"
	"github.com/idem-go/idem/lab/pgserver/child"
)

// kill describes a measurement in which processes are killed.
type kill struct {
	times    int // number of kills
	between  int // published or acknowledged messages before the next kill
	messages int // messages in the source
	workers  int
	batch    int
	// confirm is how long the broker takes to confirm a call, as if it replicated the messages.
	confirm time.Duration
	// pause is the delay of a client after each order, so that a slow relay can keep up.
	pause time.Duration
	// After rest without a message, the missing messages are lost. limit is the maximum duration of
	// a process.
	rest, limit time.Duration
}

// role is the configuration of a worker process.
type role struct {
	In, Out     string // name of a consuming or a publishing contestant
	DSN, Broker string
	Clients     int           // clients that place orders
	Pause       time.Duration // delay of a client after each order
	Workers     int           // simultaneous deliveries
	Batch       int
}

const workerKind = "messages"

// Work runs this process as a worker if it was started as one. See runner.Work.
func Work() { runner.Work(workerKind, work) }

// work runs a worker process. A process that relays continues until it is killed. A process that
// consumes ends when there are no more messages.
func work(r role) error {
	ctx := context.Background()
	pool, err := runner.Pool(ctx, r.DSN, poolSize)
	if err != nil {
		return err
	}
	client, err := broker.Dial(r.Broker)
	if err != nil {
		return err
	}
	for _, c := range in.All {
		if c.Name == r.In {
			return c.Consume(ctx, in.Place{Pool: pool, Source: client, Workers: r.Workers, Batch: r.Batch})
		}
	}
	i := slices.IndexFunc(out.All, func(c out.Contestant) bool { return c.Name == r.Out })
	if i < 0 {
		return fmt.Errorf("no contestant is named %q", r.Out)
	}
	c := out.All[i]
	placer, err := c.Open(out.Place{Pool: pool, Sink: client})
	if err != nil {
		return err
	}
	failed := make(chan error)
	if relayer, ok := placer.(out.Relayer); ok {
		go func() { failed <- fmt.Errorf("%s: the relay has ended: %w", c.Name, relayer.Relay(ctx)) }()
	}
	for range r.Clients {
		go func() {
			for {
				if err := placer.Place(ctx, out.NewOrder(1+rand.N(customers))); err != nil {
					failed <- fmt.Errorf("%s: %w", c.Name, err)
					return
				}
				time.Sleep(r.Pause)
			}
		}()
	}
	return <-failed
}

// kills starts processes one after another. It kills each process at a random moment after enough
// has returned. It returns the number of killed processes. If a process ends by itself, kills
// starts no further one.
func (k kill) kills(ctx context.Context, r role, enough func(ctx context.Context) error) (killed int, err error) {
	for range k.times {
		process, err := runner.Again(workerKind, r)
		if err != nil {
			return killed, err
		}
		living, cancel := alive(ctx, process, k.limit)
		err = enough(living)
		cancel()
		select {
		case <-time.After(rand.N(50 * time.Millisecond)):
		case <-ctx.Done():
		}
		select {
		case <-process.Done():
			return killed, nil
		default:
		}
		process.Kill()
		if err != nil {
			return killed, err
		}
		killed++
	}
	return killed, nil
}

var errEnded = errors.New("a process has ended that was not killed")

// alive returns a context that ends with a process or after limit.
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

// out kills a publishing process several times. If the contestant relays, a last process publishes
// the remaining messages.
func (k kill) out(c out.Contestant) runner.Contestant {
	return runner.Once(c.Name, func(ctx context.Context, s *runner.Server) (result.Values, error) {
		dsn, err := s.Database(ctx, out.Schema, c.Prepare)
		if err != nil {
			return nil, err
		}
		sink := broker.NewSink()
		server, err := broker.Serve(sink, nil, k.confirm)
		if err != nil {
			return nil, err
		}
		defer server.Close()
		worker := role{Out: c.Name, DSN: dsn, Broker: server.Addr(), Clients: clients, Pause: k.pause}
		killed, err := k.kills(ctx, worker, func(ctx context.Context) error { return sink.Await(ctx, sink.Distinct()+k.between) })
		if err == nil && killed < k.times {
			err = errEnded
		}
		if err != nil {
			return nil, err
		}
		if err := disconnected(ctx, s, dsn); err != nil {
			return nil, err
		}
		committed, err := expected(ctx, dsn)
		if err != nil {
			return nil, err
		}
		if c.Relays {
			worker.Clients = 0
			process, err := runner.Again(workerKind, worker)
			if err != nil {
				return nil, err
			}
			defer process.Kill()
			living, cancel := alive(ctx, process, k.limit)
			defer cancel()
			if err := sink.AwaitOrRest(living, len(committed), k.rest); err != nil {
				return nil, err
			}
		}
		a := sink.Audit(committed)
		return result.Values{
			"killed": float64(killed), "committed": float64(a.Committed), "lost": float64(a.Lost), "phantoms": float64(a.Phantoms),
			"out_of_order": float64(a.Inverted), "twice": float64(a.Twice),
		}, nil
	})
}

// disconnected waits until no session is connected to a database. A COMMIT that was in progress has
// then finished or will never be executed.
func disconnected(ctx context.Context, s *runner.Server, dsn string) error {
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

// in kills a consuming process several times. A last process handles the remaining messages.
func (k kill) in(c in.Contestant) runner.Contestant {
	return runner.Once(c.Name, func(ctx context.Context, s *runner.Server) (result.Values, error) {
		dsn, err := s.Database(ctx, in.Schema, c.Prepare)
		if err != nil {
			return nil, err
		}
		source := broker.NewSource(k.messages, 0)
		server, err := broker.Serve(nil, source, 0)
		if err != nil {
			return nil, err
		}
		defer server.Close()
		worker := role{In: c.Name, DSN: dsn, Broker: server.Addr(), Workers: k.workers, Batch: k.batch}
		killed, err := k.kills(ctx, worker, func(ctx context.Context) error { return source.AwaitAcked(ctx, source.Acked()+k.between) })
		if err != nil {
			return nil, err
		}
		process, err := runner.Again(workerKind, worker)
		if err != nil {
			return nil, err
		}
		defer process.Kill()
		living, cancel := alive(ctx, process, k.limit)
		defer cancel()
		<-living.Done()
		if err := context.Cause(living); !errors.Is(err, errEnded) {
			return nil, err
		}
		if left := source.Left(); left > 0 {
			return nil, fmt.Errorf("%d deliveries were not acknowledged", left)
		}
		lost, doubled, err := tally(ctx, dsn, source.Made())
		return result.Values{
			"killed": float64(killed), "messages": float64(source.Made()), "lost": float64(lost), "doubled": float64(doubled),
		}, err
	})
}
