package idemriver_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/waiting"
)

const scope = "tenant-1/POST orders"

var (
	hash    = idem.Hash{1}
	created = idem.Response{Status: 201, Body: []byte(`"created"`)}
)

// limit is how long a test waits for an expected event.
const limit = waiting.Limit

var eventually = waiting.Until

// newDatabase returns the DSN of a database with the tables of idem and River, and a pool on it.
func newDatabase(t testing.TB) (string, *pgxpool.Pool) {
	t.Helper()
	dsn := pgtest.DSN(t)
	pool := pgtest.Open(t, dsn)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(context.Background(), rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dsn, pool
}

// newClient returns a client with a worker. It is not started.
func newClient[T river.JobArgs](t testing.TB, pool *pgxpool.Pool, w river.Worker[T]) *river.Client[pgx.Tx] {
	t.Helper()
	client, err := clientOf(pool, w, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func clientOf[T river.JobArgs](pool *pgxpool.Pool, w river.Worker[T], logger *slog.Logger) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
		Workers: workers, Logger: logger, FetchPollInterval: 50 * time.Millisecond, FetchCooldown: 10 * time.Millisecond,
	})
}

// begin starts a client, which is stopped at the end of the test.
func begin(t testing.TB, client *river.Client[pgx.Tx]) {
	t.Helper()
	if err := client.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			t.Error(err)
		}
	})
}

// run runs the client and Watch until the end of the test.
func run(t testing.TB, client *river.Client[pgx.Tx], w *idemriver.Worker) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { defer close(watched); w.Watch(ctx, client) }()
	t.Cleanup(func() {
		cancel()
		<-watched
	})
	begin(t, client)
}

func count(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// start starts an operation in a transaction of its own.
func start(t testing.TB, pool *pgxpool.Pool, client *river.Client[pgx.Tx], d *idemriver.Definition[string], key, in string) (id string) {
	t.Helper()
	err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) (err error) {
		id, err = d.Start(context.Background(), client, tx, scope, key, hash, in)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
