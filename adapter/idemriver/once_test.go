package idemriver_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/outbox"
)

// messageClient returns a client with a OnceWorker for fn. It is not started.
func messageClient(pool *pgxpool.Pool, fn func(tx pgx.Tx, job *river.Job[idemriver.Message]) error, logger *slog.Logger, options ...inbox.Option) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	config := idemriver.OnceConfig{Logger: logger, Options: append(options, inbox.WithBackoff(10*time.Millisecond, 50*time.Millisecond))}
	river.AddWorker(workers, idemriver.NewOnceWorker(pool, "books", fn, config))
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 8}},
		Workers: workers, Logger: logger, FetchPollInterval: 50 * time.Millisecond, FetchCooldown: 10 * time.Millisecond,
	})
}

// consume runs a messageClient until the end of the test.
func consume(t testing.TB, pool *pgxpool.Pool, fn func(tx pgx.Tx, job *river.Job[idemriver.Message]) error, options ...inbox.Option) *river.Client[pgx.Tx] {
	t.Helper()
	client, err := messageClient(pool, fn, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})), options...)
	if err == nil {
		err = client.Start(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			t.Error(err)
		}
	})
	return client
}

func newMessages(t testing.TB) *pgxpool.Pool {
	t.Helper()
	_, pool := newDatabase(t)
	if _, err := pool.Exec(t.Context(), `CREATE TABLE effects (id text, body text)`); err != nil {
		t.Fatal(err)
	}
	return pool
}

func effect(tx pgx.Tx, job *river.Job[idemriver.Message]) error {
	_, err := tx.Exec(context.Background(), `INSERT INTO effects VALUES ($1, $2)`, job.Args.ID, string(job.Args.Payload))
	return err
}

const (
	ada   = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"
	grace = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a11"
)

func TestPublisher_InsertsOneJobForAMessage(t *testing.T) {
	t.Parallel()
	pool := newMessages(t)
	client := consume(t, pool, effect)
	p := idemriver.NewPublisher(client, idemriver.PublisherConfig{InsertOpts: func(m outbox.Message) river.InsertOpts {
		return river.InsertOpts{Queue: "of_" + m.Topic, Priority: 3} // no process works on this queue
	}})
	want := idemriver.Message{ID: ada, Topic: "orders", Key: "customer 7", Type: "Ordered", Payload: []byte("\x00\xff"), Headers: map[string]string{"traceparent": "00-a-b-01"}}
	said := outbox.Message{ID: want.ID, Topic: want.Topic, Key: want.Key, Type: want.Type, Payload: want.Payload, Headers: want.Headers}
	for range 2 {
		if err := p.Publish(t.Context(), []outbox.Message{said, {ID: grace, Topic: "orders"}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM river_job WHERE kind = 'idem_message' AND queue = 'of_orders' AND priority = 3 AND max_attempts = 32767`); n != 2 {
		t.Errorf("%d jobs", n)
	}
	var got idemriver.Message
	if err := pool.QueryRow(t.Context(), `SELECT args FROM river_job WHERE args->>'id' = $1`, ada).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// River runs a job again if it takes the job for stuck. Then two processes may run it at once.
func TestOnceWorker_HandlesAJobOnce(t *testing.T) {
	t.Parallel()
	pool := newMessages(t)
	at, release := make(chan struct{}, 2), make(chan struct{})
	client := consume(t, pool, func(tx pgx.Tx, job *river.Job[idemriver.Message]) error {
		at <- struct{}{}
		<-release
		return effect(tx, job)
	})
	p := idemriver.NewPublisher(client, idemriver.PublisherConfig{})
	if err := p.Publish(t.Context(), []outbox.Message{{ID: ada, Topic: "orders"}}); err != nil {
		t.Fatal(err)
	}
	<-at
	again := func() {
		if _, err := pool.Exec(t.Context(), `UPDATE river_job SET state = 'available', finalized_at = NULL WHERE state IN ('running', 'completed')`); err != nil {
			t.Fatal(err)
		}
	}
	again()
	eventually(t, "the other one to be at work", func() bool { return count(t, pool, `SELECT count(*) FROM river_job WHERE attempt = 2`) == 1 })
	close(release)
	done := func() bool { return count(t, pool, `SELECT count(*) FROM river_job WHERE state = 'completed'`) == 1 }
	eventually(t, "the job to be done", done)
	again()
	eventually(t, "the job to be done once more", done)
	if n := count(t, pool, `SELECT count(*) FROM effects`); n != 1 {
		t.Errorf("%d effects", n)
	}
}

func TestOnceWorker_SnoozesFailedAndCancelsDeadJobs(t *testing.T) {
	t.Parallel()
	pool := newMessages(t)
	attempts := make(chan int, 10)
	client := consume(t, pool, func(tx pgx.Tx, job *river.Job[idemriver.Message]) error {
		if job.Args.ID == grace {
			return effect(tx, job)
		}
		attempts <- job.Attempt
		return errors.New("cannot be read")
	}, inbox.WithMaxAttempts(3))
	p := idemriver.NewPublisher(client, idemriver.PublisherConfig{})
	if err := p.Publish(t.Context(), []outbox.Message{{ID: ada, Topic: "orders", Type: "Ordered", Headers: map[string]string{"tenant": "7"}, Payload: []byte("poison")}, {ID: grace, Topic: "orders"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job to be cancelled", func() bool {
		return count(t, pool, `SELECT count(*) FROM river_job WHERE state = 'cancelled' AND args->>'id' = $1 AND errors[1]->>'error' LIKE '%cannot be read%'`, ada) == 1
	})
	if n := count(t, pool, `SELECT count(*) FROM idem.dead_letters WHERE payload = 'poison' AND type = 'Ordered' AND headers = '{"tenant":"7"}' AND attempts = 3`); n != 1 || len(attempts) != 3 {
		t.Errorf("%d dead letters after %d attempts", n, len(attempts))
	}
	for range 3 {
		if n := <-attempts; n != 1 {
			t.Errorf("it was attempt %d of River's: a pause is none", n)
		}
	}
	eventually(t, "the other one's effect", func() bool { return count(t, pool, `SELECT count(*) FROM effects`) == 1 })
}

type mail struct {
	To string `json:"to"`
}

func (mail) Kind() string { return "mail" }

func TestOnceWorker_HandlesAnyJob(t *testing.T) {
	t.Parallel()
	pool := newMessages(t)
	workers := river.NewWorkers()
	river.AddWorker(workers, idemriver.NewOnceWorker(pool, "mails", func(tx pgx.Tx, job *river.Job[mail]) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO effects VALUES ('', $1)`, job.Args.To)
		return err
	}, idemriver.OnceConfig{}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}}, Workers: workers})
	if err == nil {
		err = client.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Stop(context.Background()) }()
	for range 2 { // with the same arguments
		if _, err := client.Insert(t.Context(), mail{"Ada"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both", func() bool { return count(t, pool, `SELECT count(*) FROM river_job WHERE state = 'completed'`) == 2 })
	if n := count(t, pool, `SELECT count(*) FROM effects`); n != 2 {
		t.Errorf("%d effects", n)
	}
}

func TestOnceWorker_HandlesARedrivenJob(t *testing.T) {
	t.Parallel()
	pool := newMessages(t)
	once := []inbox.Option{inbox.WithMaxAttempts(1)}
	m := inbox.Message{Source: "mail", ID: "17", Payload: []byte(`{"to":"Ada"}`)}
	if _, err := inbox.Handle(t.Context(), pool, "mails", m, func(pgx.Tx) error { return errors.New("cannot be read") }, once...); err != nil {
		t.Fatal(err)
	}
	if err := inbox.Redrive(t.Context(), pool, inbox.Ref{Consumer: "mails", Source: m.Source, ID: m.ID}); err != nil {
		t.Fatal(err)
	}
	got := make(chan *river.Job[mail], 1)
	worker := idemriver.NewOnceWorker(pool, "mails", func(_ pgx.Tx, job *river.Job[mail]) error {
		got <- job
		return nil
	}, idemriver.OnceConfig{Options: once})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.RunRedrives(ctx) }()
	if job := <-got; job.ID != 17 || job.Args.To != "Ada" || job.Kind != "mail" {
		t.Errorf("the job is %+v", job)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
