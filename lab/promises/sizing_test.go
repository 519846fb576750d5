package promises_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// BenchmarkRecord measures the disk space of a record with a response of 200 bytes after a vacuum,
// for docs/operate.md.
func BenchmarkRecord(b *testing.B) {
	ctx := context.Background()
	bm := newBench(b, pgtest.DSN(b))
	const records, clients = 20_000, 8
	for b.Loop() {
		var group sync.WaitGroup
		for range clients {
			group.Go(func() {
				for range records / clients {
					if err := bm.first(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	if _, err := bm.pool.Exec(ctx, "vacuum idem.records"); err != nil {
		b.Fatal(err)
	}
	var heap, index float64
	err := bm.pool.QueryRow(ctx, `select pg_table_size('idem.records')::float8 / n, pg_indexes_size('idem.records')::float8 / n
		from (select count(*) as n from idem.records) _`).Scan(&heap, &index)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(heap, "heap-B/record")
	b.ReportMetric(index, "index-B/record")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkWaiter measures the memory of a duplicate that waits in the process, for
// docs/operate.md.
func BenchmarkWaiter(b *testing.B) {
	const waiters = 10_000
	ctx := context.Background()
	bm := newBench(b, pgtest.DSN(b))
	for b.Loop() {
		key := fmt.Sprint("hot-", bm.n.Add(1))
		begun, gate := make(chan struct{}), make(chan struct{})
		w := &waits{limit: waiters, all: make(chan struct{})}
		var group sync.WaitGroup
		call := func() {
			_, err := idemDo(ctx, bm.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
				close(begun)
				<-gate
				return bm.business(tx)
			}, idem.WithWait(limit), idem.WithObserver(w))
			if err != nil {
				b.Error(err)
			}
		}
		group.Go(call)
		<-begun
		before := memory()
		for range waiters {
			group.Go(call)
		}
		<-w.all
		b.ReportMetric(float64(memory()-before)/waiters, "B/waiter")
		close(gate)
		group.Wait()
	}
	b.ReportMetric(0, "ns/op")
}

// memory returns the bytes of objects and stacks in use.
func memory() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// waits is an observer that signals when a number of calls wait.
type waits struct {
	n     atomic.Int64
	limit int64
	all   chan struct{}
}

func (w *waits) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

func (w *waits) TraceEvent(_ context.Context, data idem.TraceEventData) {
	if data.Event == idem.EventWaiting && w.n.Add(1) == w.limit {
		close(w.all)
	}
}

func (w *waits) TraceEnd(context.Context, idem.TraceEndData) {}
