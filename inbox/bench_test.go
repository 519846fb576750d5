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

func BenchmarkThousand(b *testing.B) {
	for name, handle := range map[string]func(*fixture, []inbox.Message) ([]inbox.Outcome, error){
		"Batch": func(f *fixture, ms []inbox.Message) ([]inbox.Outcome, error) {
			return inbox.Batch(context.Background(), f.pool, consumer, ms, f.record)
		},
		"Bulk/pipelined": func(f *fixture, ms []inbox.Message) ([]inbox.Outcome, error) { // in one round trip
			return inbox.Bulk(context.Background(), f.pool, consumer, ms, func(tx pgx.Tx, ms []inbox.Message) error {
				batch := &pgx.Batch{}
				for _, m := range ms {
					batch.Queue(`insert into books (id) values ($1)`, m.ID)
				}
				return tx.SendBatch(context.Background(), batch).Close()
			})
		},
		"Bulk/COPY": func(f *fixture, ms []inbox.Message) ([]inbox.Outcome, error) {
			return inbox.Bulk(context.Background(), f.pool, consumer, ms, f.recordAll)
		},
	} {
		b.Run(name, func(b *testing.B) {
			books := newFixture(b)
			for round := 0; b.Loop(); round++ {
				outcomes, err := handle(books, messages(fmt.Sprint(round), 1000))
				if err != nil || states(outcomes) != strings.Repeat("D", 1000) {
					b.Fatal(err, states(outcomes))
				}
			}
			b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// recordAll is record for Bulk.
func (b *fixture) recordAll(tx pgx.Tx, ms []inbox.Message) error {
	b.runs.Add(1)
	_, err := tx.CopyFrom(context.Background(), pgx.Identifier{"books"}, []string{"id"},
		pgx.CopyFromSlice(len(ms), func(i int) ([]any, error) { return []any{ms[i].ID}, nil }))
	return err
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
