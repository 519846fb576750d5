package inbox_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
)

// The broker forgets an acknowledged message. So its effect or its dead letter has to be on disk by
// then, even if the commits of the database are asynchronous. Each way of handling is the last
// COMMIT before a crash, because a later one would flush the earlier ones.
func TestHandle_SurvivesACrashOfTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, "wal_writer_delay=10s", "synchronous_commit=off", "max_prepared_transactions=2")
	if err := schema.UpAt(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	b := newFixtureOn(t, pgtest.Open(t, server.DSN()))
	t.Run("RefusesPrepareTransaction", func(t *testing.T) { refusesPrepareTransaction(t, b) })
	for id, c := range map[string]struct {
		handle func(id string) (inbox.Outcome, error)
		state  inbox.State
		want   string
	}{
		"Handle": {
			func(id string) (inbox.Outcome, error) { return b.handle(id), nil },
			inbox.Done, `select count(*) from books b join idem.inbox i using (id) where i.state = 'handled' and id = $1`,
		},
		"HandleTx": {
			func(id string) (o inbox.Outcome, err error) {
				err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
					o, err = inbox.HandleTx(t.Context(), tx, consumer, message(id), b.recordID(id))
					return err
				})
				return o, err
			},
			inbox.Done, `select count(*) from books b join idem.inbox i using (id) where i.state = 'handled' and id = $1`,
		},
		"a dead letter": {
			func(id string) (inbox.Outcome, error) {
				return inbox.Handle(t.Context(), b.pool, consumer, message(id), func(pgx.Tx) error { return errPoison }, once...)
			},
			inbox.Dead, `select count(*) from idem.dead_letters where id = $1`,
		},
	} {
		t.Run(id, func(t *testing.T) {
			b.exec(`checkpoint`)
			if o, err := c.handle(id); o.State != c.state || err != nil {
				t.Fatalf("%+v, %v", o, err)
			}
			server.Kill()
			<-server.Done()
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.pool.Reset()
			if n := b.count(c.want, id); n != 1 {
				t.Errorf("%d are stored", n)
			}
		})
	}
}

// A prepared transaction could mark the messages behind it as handled at a later COMMIT PREPARED.
func refusesPrepareTransaction(t *testing.T, b *fixture) {
	fn := func(tx pgx.Tx, m inbox.Message) error {
		if err := b.record(tx, m); err != nil || m.ID != "m-0003" {
			return err
		}
		tx.Exec(t.Context(), `prepare transaction 'prepared'`)
		return nil
	}
	outcomes := b.batch(messages("m", 6), fn, inbox.WithMaxAttempts(2))
	b.wantStates("DDDRDD", outcomes)
	if n := b.count(`select count(*) from pg_prepared_xacts`); n != 0 {
		b.exec(`commit prepared 'prepared'`)
		t.Errorf("%d transactions are prepared", n)
	}
	if o := outcomes[3]; !errors.Is(o.Err, inbox.ErrTxEnded) {
		t.Errorf("%+v", o)
	}
	b.due()
	b.wantStates("dddXdd", b.batch(messages("m", 6), fn, inbox.WithMaxAttempts(2)))
}
