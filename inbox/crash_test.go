package inbox_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
)

// The broker forgets an acknowledged message. So its effect or its dead letter has to be on disk by
// then, even if the commits of the database are asynchronous.
func TestHandle_SurvivesACrashOfTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, "wal_writer_delay=10s", "synchronous_commit=off")
	if err := schema.UpAt(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	b := newFixtureOn(t, pgtest.Open(t, server.DSN()))
	for name, c := range map[string]struct {
		handle func(b *fixture) (inbox.Outcome, error)
		state  inbox.State
		want   string
	}{
		"Handle": {
			func(b *fixture) (inbox.Outcome, error) { return b.handle("1"), nil },
			inbox.Done, `select count(*) from books b join idem.inbox i on i.id = b.id where i.state = 'handled'`,
		},
		"HandleTx": {
			func(b *fixture) (o inbox.Outcome, err error) {
				err = pgx.BeginFunc(b.t.Context(), b.pool, func(tx pgx.Tx) error {
					o, err = inbox.HandleTx(b.t.Context(), tx, consumer, message("1"), b.recordID("1"))
					return err
				})
				return o, err
			},
			inbox.Done, `select count(*) from books b join idem.inbox i on i.id = b.id where i.state = 'handled'`,
		},
		"a dead letter": {
			func(b *fixture) (inbox.Outcome, error) {
				return inbox.Handle(b.t.Context(), b.pool, consumer, message("1"), func(pgx.Tx) error { return errPoison }, inbox.WithMaxAttempts(1))
			},
			inbox.Dead, `select count(*) from idem.dead_letters`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sql := range []string{`truncate books, idem.inbox, idem.dead_letters`, `checkpoint`} {
				if _, err := b.pool.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			if o, err := c.handle(b); o.State != c.state || err != nil {
				t.Fatalf("%+v, %v", o, err)
			}
			server.Kill()
			<-server.Done()
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.pool.Reset()
			if n := b.count(c.want); n != 1 {
				t.Errorf("%d are stored", n)
			}
		})
	}
}
