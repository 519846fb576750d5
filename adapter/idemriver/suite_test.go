package idemriver_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/inbox/inboxtest"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
)

func TestPublisher_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, outboxtest.Suite{Patience: ledger.Limit, Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: newTarget})
}

func newTarget(t testing.TB) outboxtest.Target {
	dsn, pool := newDatabase(t)
	proxy := pgtest.Proxy(t, dsn)
	through := pgtest.Open(t, proxy.DSN())
	client, err := river.NewClient(riverpgxv5.New(through), &river.Config{})
	if err != nil {
		t.Fatal(err)
	}
	config := idemriver.PublisherConfig{InsertOpts: func(m outbox.Message) river.InsertOpts {
		switch m.Type {
		case "panics":
			panic("a bug")
		case "refused":
			return river.InsertOpts{Queue: "no name of a queue"}
		}
		return river.InsertOpts{}
	}}
	kind := func(name string) func(*outbox.Message) { return func(m *outbox.Message) { m.Type = name } }
	return outboxtest.Target{
		Publisher: idemriver.NewPublisher(client, config), Topic: "orders", Unordered: true, Arrived: reader(pool),
		Bad: map[string]func(*outbox.Message){"refused": kind("refused"), "panics": kind("panics")},
		Away: map[string]func() func(){
			"its database is unavailable": func() func() {
				proxy.Refuse(pgproxy.Reset)
				proxy.Cut(pgproxy.Reset)
				return proxy.Admit
			},
			"its pool is closed": func() func() { through.Close(); return nil },
		},
	}
}

// reader returns a function that reads the new jobs of the topic.
func reader(pool *pgxpool.Pool) func(context.Context) ([]outbox.Message, error) {
	seen := map[int64]bool{} // jobs may commit in another order than that of their IDs
	return func(ctx context.Context) (all []outbox.Message, err error) {
		rows, _ := pool.Query(ctx, `SELECT id, args FROM river_job WHERE args->>'topic' = 'orders' ORDER BY id`)
		var id int64
		var job idemriver.Message
		_, err = pgx.ForEachRow(rows, []any{&id, &job}, func() error {
			if !seen[id] {
				seen[id], all = true, append(all, outbox.Message{ID: job.ID, Topic: job.Topic, Key: job.Key, Type: job.Type, Payload: job.Payload, Headers: job.Headers})
			}
			job = idemriver.Message{}
			return nil
		})
		return all, err
	}
}

func TestConsumer_KeepsItsPromises(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, inboxtest.Suite{
		Patience: ledger.Limit,
		Pool:     func(t testing.TB) *pgxpool.Pool { _, pool := newDatabase(t); return pool },
		New: func(t testing.TB, pool *pgxpool.Pool) inboxtest.Source {
			client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
			if err != nil {
				t.Fatal(err)
			}
			p := idemriver.NewPublisher(client, idemriver.PublisherConfig{})
			return inboxtest.Source{
				Name: "books",
				Deliver: func(ctx context.Context, messages ...inbox.Message) error {
					return p.Publish(ctx, ledger.Outgoing("orders", messages))
				},
				Run: func(ctx context.Context, handle inboxtest.Handle, options ...inbox.Option) error {
					return runWorker(ctx, pool, handle, options)
				},
				Left: func(ctx context.Context) (n int, err error) {
					err = pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE finalized_at IS NULL`).Scan(&n)
					return n, err
				},
			}
		},
	})
}

// runWorker runs a OnceWorker with its redrives. It first rescues jobs of earlier runs, as River
// does after an hour.
func runWorker(ctx context.Context, pool *pgxpool.Pool, handle inboxtest.Handle, options []inbox.Option) error {
	if _, err := pool.Exec(ctx, `UPDATE river_job SET state = 'available' WHERE state = 'running'`); err != nil {
		return err
	}
	quiet := slog.New(slog.DiscardHandler)
	worker := idemriver.NewOnceWorker(pool, "books", func(tx pgx.Tx, _ *river.Job[idemriver.Message]) error {
		m, _ := inbox.MessageOf(inbox.Context(tx))
		return handle(tx, m)
	}, idemriver.OnceConfig{Options: options, Logger: quiet})
	client, err := clientOf(pool, worker, quiet)
	if err == nil {
		err = client.Start(context.WithoutCancel(ctx))
	}
	if err != nil {
		return err
	}
	err = worker.RunRedrives(ctx)
	return errors.Join(err, client.StopAndCancel(context.WithoutCancel(ctx)))
}
