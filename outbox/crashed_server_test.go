package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/outbox"
)

// A relay publishes what is committed. A transaction with messages is on the disk before that, although commits of the database do not wait for it:
// otherwise a crash of the server would take back the effect whose message the consumers have.
func TestTransactionWithMessagesOutlivesACrashOfAServerThatCommitsAsynchronously(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, "wal_writer_delay=10s", "synchronous_commit=off")
	if err := schema.UpAt(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	o := &office{t: t, dsn: server.DSN(), pool: pgtest.Open(t, server.DSN())}
	o.exec(`create table orders (what text not null)`)
	for name, add := range map[string]func(tx pgx.Tx) error{
		"Add":         func(tx pgx.Tx) error { return outbox.Add(context.Background(), tx, message("1", "one")) },
		"Add, behind": func(tx pgx.Tx) error { return addIn(tx, message("1", "one")) },
		"Queue": func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			if err := outbox.Queue(batch, message("1", "one")); err != nil {
				return err
			}
			return tx.SendBatch(context.Background(), batch).Close()
		},
		"delayed": func(tx pgx.Tx) error {
			later := message("2", "one")
			later.NotBefore = time.Now().Add(time.Hour)
			return outbox.Add(context.Background(), tx, message("1", "one"), later)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o.exec(`truncate orders, idem.outbox`)
			o.exec(`checkpoint`)
			err := pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), `insert into orders (what) values ('an order')`); err != nil {
					return err
				}
				return add(tx)
			})
			if err != nil {
				t.Fatal(err)
			}
			server.Kill()
			<-server.Done()
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.pool.Reset()
			if orders, messages := o.count(`select count(*) from orders`), o.count(`select count(*) from idem.outbox`); orders != 1 || messages != 1 {
				t.Errorf("%d orders and %d messages", orders, messages)
			}
		})
	}
}

// addIn adds behind a savepoint.
func addIn(tx pgx.Tx, m outbox.Message) error {
	return pgx.BeginFunc(context.Background(), tx, func(tx pgx.Tx) error { return outbox.Add(context.Background(), tx, m) })
}
