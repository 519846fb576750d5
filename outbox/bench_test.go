package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// fill inserts n messages of 200 bytes with a thousand keys, by one statement.
func (o *database) fill(n int) {
	o.t.Helper()
	o.exec(`insert into idem.outbox (created_at, id, aggregatetype, aggregateid, type, payload, headers)
		select clock_timestamp(), gen_random_uuid(), 'orders', format('key %s', i % 1000), 'OrderPlaced', convert_to(rpad('{', 200, 'x'), 'UTF8'), '{"traceparent": "00"}'
		from generate_series(1, $1) i`, n)
}

// BenchmarkRelay relays 100,000 messages an iteration to a Publisher that does nothing, over one
// connection. An old snapshot keeps vacuum from removing the rows of published messages. An open
// transaction that has added a message also keeps its gap open. -benchtime 250x relays 25 million
// messages, which is twenty minutes at 20,000 a second.
func BenchmarkRelay(b *testing.B) {
	const turn = 100_000
	for _, beside := range []string{"nothing", "an old snapshot", "an open transaction"} {
		b.Run("beside "+beside, func(b *testing.B) {
			old := beside != "nothing"
			o := newDatabase(b)
			o.exec(`alter table idem.outbox set (autovacuum_enabled = off)`)
			if old {
				o.fill(turn)
				tx, err := o.pool.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
				if err != nil {
					b.Fatal(err)
				}
				defer tx.Rollback(context.Background())
				if _, err := tx.Exec(b.Context(), `select count(*) from idem.outbox`); err != nil {
					b.Fatal(err)
				}
				if beside == "an open transaction" {
					o.in(tx, message("late", "late"))
				}
			}
			var left atomic.Int64
			publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
				left.Add(int64(len(messages)))
				return nil
			})
			relay, stop := o.relay(publisher, outbox.RelayConfig{})
			defer stop()
			if old {
				eventually(b, "the first messages", func() bool { return left.Load() == turn })
			}
			var took, slowest time.Duration
			turns, since := 0, time.Now()
			for b.Loop() {
				b.StopTimer()
				left.Store(0)
				o.fill(turn)
				if !old {
					o.exec(`checkpoint`)
				}
				began := time.Now()
				b.StartTimer()
				relay.Wake()
				for left.Load() < turn {
					time.Sleep(time.Millisecond)
				}
				took, slowest = took+time.Since(began), max(slowest, time.Since(began))
				turns++
			}
			b.ReportMetric(float64(turns*turn)/took.Seconds(), "messages/s")
			b.ReportMetric(turn/slowest.Seconds(), "messages/s-of-the-slowest-turn")
			b.ReportMetric(time.Since(since).Seconds(), "s-in-all")
		})
	}
}

// BenchmarkAdd measures a transaction of one INSERT, alone and with a message.
func BenchmarkAdd(b *testing.B) {
	for _, how := range []string{"alone", "Add", "Queue"} {
		b.Run(how, func(b *testing.B) {
			o := newDatabase(b)
			o.exec(`create table orders (id bigint generated always as identity primary key, what text not null)`)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				err := pgx.BeginFunc(b.Context(), o.pool, func(tx pgx.Tx) error {
					m := message(fmt.Sprint("key ", n), "OrderPlaced")
					if how == "Queue" {
						batch := &pgx.Batch{}
						batch.Queue(`insert into orders (what) values ($1)`, "an order")
						if err := outbox.Queue(batch, m); err != nil {
							return err
						}
						return tx.SendBatch(b.Context(), batch).Close()
					}
					if _, err := tx.Exec(b.Context(), `insert into orders (what) values ($1)`, "an order"); err != nil || how == "alone" {
						return err
					}
					return outbox.Add(b.Context(), tx, m)
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
