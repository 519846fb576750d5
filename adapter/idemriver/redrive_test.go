package idemriver_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem/adapter/idemriver"
	"github.com/idem-go/idem/inbox"
)

type invoice struct {
	Number int `json:"number"`
}

func (invoice) Kind() string { return "invoice" }

// redrive makes a dead letter of a message, has it tried again by a worker, and returns the job that its function is given.
func redrive[T river.JobArgs](t *testing.T, m inbox.Message) *river.Job[T] {
	t.Helper()
	pool := newMessages(t)
	once := []inbox.Option{inbox.WithMaxAttempts(1)}
	_, err := inbox.Handle(t.Context(), pool, "books", m, func(pgx.Tx) error { return errors.New("cannot be read") }, once...)
	if err != nil {
		t.Fatal(err)
	}
	if err := inbox.Redrive(t.Context(), pool, inbox.Ref{Consumer: "books", Source: m.Source, ID: m.ID}); err != nil {
		t.Fatal(err)
	}
	given := make(chan *river.Job[T], 1)
	worker := idemriver.NewOnceWorker(pool, "books", func(tx pgx.Tx, job *river.Job[T]) error {
		given <- job
		return nil
	}, idemriver.OnceConfig{Options: once, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.RunRedrives(ctx) }()
	eventually(t, "no dead letter", func() bool { return count(t, pool, `SELECT count(*) FROM idem.dead_letters`) == 0 })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return <-given
}

func TestDeadLetterThatIsRedrivenIsHandledByTheWorker(t *testing.T) {
	t.Parallel()
	m := inbox.Message{Source: "orders", ID: ada, Key: "k", Type: "Ordered", Headers: map[string]string{"tenant": "7"}, Payload: []byte("mended")}
	job := redrive[idemriver.Message](t, m)
	if a := job.Args; a.ID != ada || a.Topic != "orders" || a.Key != "k" || a.Type != "Ordered" || a.Headers["tenant"] != "7" || string(a.Payload) != "mended" ||
		job.Kind != a.Kind() || !json.Valid(job.EncodedArgs) {
		t.Errorf("the job is %+v", job)
	}
	other := redrive[invoice](t, inbox.Message{Source: "invoice", ID: "17", Payload: []byte(`{"number":3}`)})
	if other.ID != 17 || other.Args.Number != 3 || other.Kind != "invoice" {
		t.Errorf("the job is %+v", other)
	}
}
