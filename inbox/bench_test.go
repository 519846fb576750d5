package inbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/inbox"
)

// Each message inserts one row. make bench/inbox runs the benchmarks.

// BenchmarkThousandPlainRows is the baseline of Batch: the same rows in one transaction, without an
// inbox.
func BenchmarkThousandPlainRows(b *testing.B) {
	books := newFixture(b)
	for round := 0; b.Loop(); round++ {
		err := pgx.BeginFunc(b.Context(), books.pool, func(tx pgx.Tx) error {
			for _, m := range messages(fmt.Sprint(round), 1000) {
				if err := books.record(tx, m); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

func BenchmarkHandle(b *testing.B) {
	books := newFixture(b)
	books.handle("warm")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		books.handle(fmt.Sprint(i))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

func BenchmarkBatchOfAThousand(b *testing.B) {
	books := newFixture(b)
	benchmark(b, func(ms []inbox.Message) ([]inbox.Outcome, error) {
		return inbox.Batch(context.Background(), books.pool, consumer, ms, books.record)
	})
}

// BenchmarkBulkOfAThousandPipelined has a handler that sends all its statements in one round trip.
func BenchmarkBulkOfAThousandPipelined(b *testing.B) {
	books := newFixture(b)
	benchmark(b, func(ms []inbox.Message) ([]inbox.Outcome, error) {
		return inbox.Bulk(context.Background(), books.pool, consumer, ms, func(tx pgx.Tx, ms []inbox.Message) error {
			batch := &pgx.Batch{}
			for _, m := range ms {
				batch.Queue(`insert into books (id) values ($1)`, m.ID)
			}
			return tx.SendBatch(context.Background(), batch).Close()
		})
	})
}

func BenchmarkBulkOfAThousandCopied(b *testing.B) {
	books := newFixture(b)
	benchmark(b, func(ms []inbox.Message) ([]inbox.Outcome, error) {
		return inbox.Bulk(context.Background(), books.pool, consumer, ms, books.recordAll)
	})
}

// recordAll is record for Bulk.
func (b *fixture) recordAll(tx pgx.Tx, ms []inbox.Message) error {
	b.runs.Add(1)
	_, err := tx.CopyFrom(context.Background(), pgx.Identifier{"books"}, []string{"id"},
		pgx.CopyFromSlice(len(ms), func(i int) ([]any, error) { return []any{ms[i].ID}, nil }))
	return err
}

func benchmark(b *testing.B, handle func([]inbox.Message) ([]inbox.Outcome, error)) {
	for round := 0; b.Loop(); round++ {
		outcomes, err := handle(messages(fmt.Sprint(round), 1000))
		if err != nil || states(outcomes) != strings.Repeat("D", 1000) {
			b.Fatal(err, states(outcomes))
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkLanes has a handler that takes a millisecond, and handles a thousand messages of a
// hundred keys with one lane and with eight.
func BenchmarkLanes(b *testing.B) {
	books := newFixture(b, connections(12))
	took := map[int]time.Duration{}
	round := 0
	for ; b.Loop(); round++ {
		for _, lanes := range []int{1, 8} {
			ms := messages(fmt.Sprint(round, " of ", lanes), 1000)
			for i := range ms {
				ms[i].Key = fmt.Sprint(i % 100)
			}
			began := time.Now()
			outcomes := books.batch(ms, func(tx pgx.Tx, m inbox.Message) error {
				time.Sleep(time.Millisecond)
				return books.record(tx, m)
			}, inbox.WithLanes(lanes), inbox.WithOrder())
			took[lanes] += time.Since(began)
			books.wantStates(strings.Repeat("D", 1000), outcomes)
		}
	}
	b.ReportMetric(1000*float64(round)/took[8].Seconds(), "messages/s-in-eight-lanes")
	b.ReportMetric(took[1].Seconds()/took[8].Seconds(), "times-as-fast")
}
