package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// drained is an outbox that is filled and emptied repeatedly.
type drained struct {
	*database
	relay *outbox.Relay
	stop  func()
	left  atomic.Int64
	took  time.Duration
}

func (d *drained) begin() {
	d.relay, d.stop = d.database.relay(outbox.PublisherFunc(func(_ context.Context, messages []outbox.Message) error {
		d.left.Add(int64(len(messages)))
		return nil
	}), outbox.RelayConfig{})
}

// drain adds n messages and returns when all of them are published, by the running relay or by a
// new one.
func (d *drained) drain(n int, anew bool) {
	if anew && d.stop != nil {
		d.stop()
		d.stop = nil
	}
	d.left.Store(0)
	d.fill(n)
	began := time.Now()
	if d.stop == nil {
		d.begin()
	} else {
		d.relay.Wake()
	}
	for d.left.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
	d.took += time.Since(began)
}

// BenchmarkDrain empties two outboxes of 20,000 messages alternately. A transaction keeps an old
// snapshot in the database of one. One relay runs all the time, or a new relay starts each time.
// Other load on the machine slows both alike.
func BenchmarkDrain(b *testing.B) {
	for _, by := range []string{"one relay", "a new relay"} {
		b.Run("by "+by, func(b *testing.B) { benchmarkDrain(b, by == "a new relay") })
	}
}

func benchmarkDrain(b *testing.B, anew bool) {
	const turn = 20_000
	free, held := &drained{database: newDatabase(b)}, &drained{database: newDatabase(b)}
	tx, err := held.pool.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		b.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(b.Context(), `select count(*) from idem.outbox`); err != nil {
		b.Fatal(err)
	}
	turns := 0
	for b.Loop() {
		free.drain(turn, anew)
		held.drain(turn, anew)
		turns++
	}
	free.stop()
	held.stop()
	b.ReportMetric(float64(turns*turn)/free.took.Seconds(), "messages/s-beside-nothing")
	b.ReportMetric(float64(turns*turn)/held.took.Seconds(), "messages/s-beside-an-old-snapshot")
	b.ReportMetric(held.took.Seconds()/free.took.Seconds(), "times-as-long")
}
