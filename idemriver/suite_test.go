package idemriver_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/idem-go/idem/idemriver"
	"github.com/idem-go/idem/internal/pgproxy"
	"github.com/idem-go/idem/internal/pgtest"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
)

func TestPublisherKeepsItsPromises(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, outboxtest.Suite{Pool: func(t testing.TB) *pgxpool.Pool { return pgtest.New(t) }, New: newTarget})
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
			"its database is away": func() func() {
				proxy.Refuse(pgproxy.Reset)
				proxy.Cut(pgproxy.Reset)
				return proxy.Admit
			},
			"its pool is closed": func() func() { through.Close(); return nil },
		},
	}
}

// reader reads the jobs of the topic.
func reader(pool *pgxpool.Pool) func(context.Context) ([]outbox.Message, error) {
	met := map[int64]bool{} // they need not be committed in the order of their ids
	return func(ctx context.Context) (all []outbox.Message, err error) {
		rows, _ := pool.Query(ctx, `SELECT id, args FROM river_job WHERE args->>'topic' = 'orders' ORDER BY id`)
		var id int64
		var job idemriver.Message
		_, err = pgx.ForEachRow(rows, []any{&id, &job}, func() error {
			if !met[id] {
				met[id], all = true, append(all, outbox.Message(job))
			}
			job = idemriver.Message{}
			return nil
		})
		return all, err
	}
}
