package idemriver_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
	"github.com/idem-go/idem/outbox"
)

type messageHandler func(tx pgx.Tx, job *river.Job[idemriver.Message]) error

func messageWorker(
	pool *pgxpool.Pool, fn messageHandler, options ...inbox.Option,
) *idemriver.OnceWorker[idemriver.Message] {
	config := idemriver.OnceConfig{Options: append(options, ledger.Quick), Logger: slog.New(slog.DiscardHandler)}
	return idemriver.NewOnceWorker(pool, "books", fn, config)
}

// consume runs a OnceWorker until the end of the test.
func consume(t testing.TB, pool *pgxpool.Pool, fn messageHandler, options ...inbox.Option) *river.Client[pgx.Tx] {
	t.Helper()
	client := newClient(t, pool, messageWorker(pool, fn, options...))
	begin(t, client)
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
	for range 2 {
		if err := p.Publish(t.Context(), []outbox.Message{{ID: ada, Topic: "orders"}, {ID: grace, Topic: "orders"}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM river_job WHERE kind = 'idem_message' AND queue = 'of_orders' AND priority = 3 AND max_attempts = 32767`); n != 2 {
		t.Errorf("%d jobs", n)
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
	client := consume(t, pool, func(_ pgx.Tx, job *river.Job[idemriver.Message]) error {
		attempts <- job.Attempt
		return errors.New("cannot be read")
	}, inbox.WithMaxAttempts(3))
	p := idemriver.NewPublisher(client, idemriver.PublisherConfig{})
	if err := p.Publish(t.Context(), []outbox.Message{{ID: ada, Topic: "orders"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job to be cancelled", func() bool {
		return count(t, pool, `SELECT count(*) FROM river_job WHERE state = 'cancelled' AND args->>'id' = $1 AND errors[1]->>'error' LIKE '%cannot be read%'`, ada) == 1
	})
	for range len(attempts) {
		if n := <-attempts; n != 1 {
			t.Errorf("it was attempt %d of River's: a pause is none", n)
		}
	}
}

type mail struct {
	To string `json:"to"`
}

func (mail) Kind() string { return "mail" }

func TestOnceWorker_HandlesAnyJob(t *testing.T) {
	t.Parallel()
	pool := newMessages(t)
	client := newClient(t, pool, idemriver.NewOnceWorker(pool, "mails", func(tx pgx.Tx, job *river.Job[mail]) error {
		_, err := tx.Exec(context.Background(), `INSERT INTO effects VALUES ('', $1)`, job.Args.To)
		return err
	}, idemriver.OnceConfig{}))
	begin(t, client)
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
