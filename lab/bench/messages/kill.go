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

// kill describes a measurement in which worker processes are killed.
type kill struct {
	times    int // number of kills
	between  int // number of messages that are published or acknowledged before the next kill
	messages int // number of messages to consume
	workers  int
	batch    int
	// confirm is how long the broker takes to confirm a Publish, as if it replicated the messages.
	confirm time.Duration
	// pause is the delay of a client after each order, so that a slow relay can keep up.
	pause time.Duration
	// If no message arrives during the time rest, the missing messages count as lost. limit is the
	// maximum run time of a process.
	rest, limit time.Duration
}

// role is the configuration of a worker process.
type role struct {
	In, Out     string // name of a consuming (In) or a publishing (Out) contestant; the other is empty
	DSN, Broker string
	Clients     int           // number of clients that place orders
	Pause       time.Duration // delay of a client after each order
	Workers     int           // number of deliveries or batches handled at the same time
	Batch       int
}

const workerKind = "messages"

// Work runs the worker and exits, if this process was started as a worker process of package
// messages. Otherwise it returns at once. See runner.Work.
func Work() { runner.Work(workerKind, work) }

// work is the main function of a worker process. A publishing process runs until it is killed. A
// consuming process returns when there are no more messages.
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

// kills starts worker processes one after another. After each start it calls enough(ctx), which
// waits until the process has made progress. It kills the process at a random moment after that. It
// returns the number of killed processes. If a process ends by itself, kills starts no further
// process.
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

// alive returns a context that ends when the process ends, or after limit.
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

// out returns a runner.Contestant that kills a publishing process several times and counts lost and
// doubled messages. If c has a relay, a last process publishes the remaining messages before the
// count.
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

// disconnected waits until no session is connected to the database at dsn. After that, a COMMIT of
// a killed process can no longer take effect.
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

// in returns a runner.Contestant that kills a consuming process several times. A last process
// handles the remaining messages. Then lost messages and doubled effects are counted.
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
