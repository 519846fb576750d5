package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// delay inserts n messages that are due tomorrow, by one statement.
func (o *database) delay(n int) {
	o.t.Helper()
	o.exec(`insert into idem.delayed (not_before, created_at, id, aggregatetype, aggregateid, type, payload)
		select clock_timestamp() + interval '1 day' + i * interval '1 millisecond', clock_timestamp(), gen_random_uuid(), 'orders', format('key %s', i % 1000),
		'OrderOverdue', convert_to(rpad('{', 200, 'x'), 'UTF8') from generate_series(1, $1) i`, n)
}

// lateness delays a message by 200 ms and returns how much later it is published.
func (o *database) lateness() time.Duration {
	o.t.Helper()
	due := o.now().Add(200 * time.Millisecond)
	o.add(delayed("late", "late", due))
	for o.count(`select (select count(*) from idem.delayed where not_before < clock_timestamp() + interval '1 hour') + (select count(*) from idem.outbox)`) > 0 {
		time.Sleep(5 * time.Millisecond)
	}
	return o.now().Sub(due)
}

// BenchmarkDelayed empties two outboxes of 20,000 messages alternately. The database of one has a
// million delayed messages that are due tomorrow. Other load on the machine slows both alike.
func BenchmarkDelayed(b *testing.B) {
	const turn = 20_000
	none, million := &drained{database: newDatabase(b)}, &drained{database: newDatabase(b)}
	million.delay(1_000_000)
	million.exec(`vacuum analyze idem.delayed`)
	million.exec(`checkpoint`)
	add := func(n int) func(tx pgx.Tx) error {
		return func(tx pgx.Tx) error {
			return outbox.Add(context.Background(), tx, outbox.Message{ID: outbox.NewID(), Topic: "orders", Key: fmt.Sprintf("order %4d", n), Type: "OrderPlaced", Payload: make([]byte, 200)})
		}
	}
	ofNone, ofMillion := none.wal(add), million.wal(add)
	var lateNone, lateMillion time.Duration
	turns := 0
	for b.Loop() {
		none.drain(turn, false)
		million.drain(turn, false)
		lateNone += none.lateness()
		lateMillion += million.lateness()
		turns++
	}
	none.stop()
	million.stop()
	b.ReportMetric(float64(turns*turn)/none.took.Seconds(), "messages/s-beside-none")
	b.ReportMetric(float64(turns*turn)/million.took.Seconds(), "messages/s-beside-a-million")
	b.ReportMetric(million.took.Seconds()/none.took.Seconds(), "times-as-long")
	b.ReportMetric(lateNone.Seconds()/float64(turns), "s-late-beside-none")
	b.ReportMetric(lateMillion.Seconds()/float64(turns), "s-late-beside-a-million")
	b.ReportMetric(float64(ofNone), "wal-of-an-Add-beside-none")
	b.ReportMetric(float64(ofMillion), "wal-of-an-Add-beside-a-million")
}
