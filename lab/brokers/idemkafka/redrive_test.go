package idemkafka_test

import (
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/adapter/idemkafka"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/ledger"
)

func TestDeadLetterThatIsRedrivenIsHandledByTheConsumer(t *testing.T) {
	t.Parallel()
	onClusters(t, 1, func(t *testing.T, c *cluster) {
		l := newBooks(t)
		var mended atomic.Bool
		given := make(chan *kgo.Record, 1)
		ledger.Run(t, c.consumer(l, func(tx pgx.Tx, m inbox.Message, record *kgo.Record) error {
			if !mended.Load() {
				return errPoison
			}
			given <- record
			return l.enter(tx, m, record)
		}, idemkafka.ConsumerConfig{Options: []inbox.Option{inbox.WithMaxAttempts(1)}}).Run)
		c.publish(message("1", "a"))
		l.Wait(`SELECT id FROM idem.dead_letters`, 1)
		mended.Store(true)
		if err := inbox.Redrive(t.Context(), l.Pool, inbox.Ref{Consumer: c.group, Source: c.topic, ID: "1"}); err != nil {
			t.Fatal(err)
		}
		l.WaitForLines(1)
		record := <-given
		if record.Topic != c.topic || string(record.Key) != "a" || string(record.Value) != "a1" || string(record.Headers[0].Value) != "1" || record.Offset != -1 {
			t.Errorf("the handler is given %+v", record)
		}
		l.Wait(`SELECT id FROM idem.inbox WHERE state = 'handled' AND NOT EXISTS (SELECT FROM idem.dead_letters)`, 1)
	})
}
