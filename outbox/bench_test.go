package outbox_test

import (
	"context"
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
// connection. An old snapshot keeps vacuum from removing the rows of published messages. A million
// delayed messages are due tomorrow.
func BenchmarkRelay(b *testing.B) {
	const turn = 100_000
	for _, beside := range []string{"nothing", "an old snapshot", "delayed messages"} {
		b.Run("beside "+beside, func(b *testing.B) {
			o := newDatabase(b)
			o.exec(`alter table idem.outbox set (autovacuum_enabled = off)`)
			var left atomic.Int64
			publisher := outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
				left.Add(int64(len(messages)))
				return nil
			})
			switch beside {
			case "an old snapshot":
				o.fill(turn)
				tx, err := o.pool.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
				if err != nil {
					b.Fatal(err)
				}
				defer tx.Rollback(context.Background())
				if _, err := tx.Exec(b.Context(), `select count(*) from idem.outbox`); err != nil {
					b.Fatal(err)
				}
			case "delayed messages":
				o.exec(`insert into idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type, payload)
					select clock_timestamp() + interval '1 day' + i * interval '1 ms', clock_timestamp(), gen_random_uuid(), 'orders',
					format('key %s', i % 1000), 'OrderOverdue', convert_to(rpad('{', 200, 'x'), 'UTF8') from generate_series(1, 1000000) i`)
				o.exec(`vacuum analyze idem.delayed`)
			}
			relay, stop := o.relay(publisher, outbox.RelayConfig{})
			defer stop()
			eventually(b, "the outbox to be empty", func() bool { return o.waiting() == 0 })
			var took time.Duration
			turns := 0
			for b.Loop() {
				b.StopTimer()
				left.Store(0)
				o.fill(turn)
				if beside != "an old snapshot" {
					o.exec(`checkpoint`)
				}
				began := time.Now()
				b.StartTimer()
				relay.Wake()
				for left.Load() < turn {
					time.Sleep(time.Millisecond)
				}
				took += time.Since(began)
				turns++
			}
			b.ReportMetric(float64(turns*turn)/took.Seconds(), "messages/s")
		})
	}
}
