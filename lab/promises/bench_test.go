package promises_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
)

// bench is the work that the benchmark measures: one insert, and a response of 200 bytes.
type bench struct {
	pool *pgxpool.Pool
	n    atomic.Int64 // makes keys
	resp idem.Response
}

func newBench(b *testing.B, dsn string) *bench {
	b.Helper()
	bm := &bench{pool: pgtest.Open(b, dsn, maxConns(10)), resp: idem.Response{Status: 201, Body: make([]byte, 200)}}
	ctx := context.Background()
	if _, err := bm.pool.Exec(ctx, "create table if not exists orders (id bigint generated always as identity primary key, sku text)"); err != nil {
		b.Fatal(err)
	}
	for _, key := range []string{"replayed", "replayed"} {
		if err := bm.do(ctx, key); err != nil {
			b.Fatal(err)
		}
	}
	return bm
}

func (bm *bench) business(tx pgx.Tx) (idem.Response, error) {
	_, err := tx.Exec(context.Background(), "insert into orders (sku) values ($1)", "sku-1")
	return bm.resp, err
}

func (bm *bench) do(ctx context.Context, key string) error {
	_, err := idemDo(ctx, bm.pool, scope, key, hashA, bm.business)
	return err
}

func (bm *bench) plain(ctx context.Context) error { return plain(ctx, bm.pool, bm.business) }

func (bm *bench) first(ctx context.Context) error {
	return bm.do(ctx, fmt.Sprint("key-of-some-length-", bm.n.Add(1)))
}

func (bm *bench) replay(ctx context.Context) error { return bm.do(ctx, "replayed") }

func (bm *bench) selects(ctx context.Context) error {
	var body []byte
	return bm.pool.QueryRow(ctx, "select body from idem.records where scope = $1 and key = $2", scope, "replayed").Scan(&body)
}

// measured is the cost of one way to do the work.
type measured struct {
	latencies []time.Duration
	allocs    uint64
	elapsed   time.Duration
}

func (m *measured) p50() float64 {
	slices.Sort(m.latencies)
	return float64(m.latencies[len(m.latencies)/2])
}

func (m *measured) throughput() float64 { return float64(len(m.latencies)) / m.elapsed.Seconds() }

func (m *measured) allocsPerOp() float64 { return float64(m.allocs) / float64(len(m.latencies)) }

// run does the work n times in each of several clients.
func (m *measured) run(b *testing.B, clients, n int, work func(context.Context) error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	all := make([][]time.Duration, clients)
	start := time.Now()
	var group sync.WaitGroup
	for c := range clients {
		group.Go(func() {
			for range n {
				begin := time.Now()
				if err := work(context.Background()); err != nil {
					b.Error(err)
					return
				}
				all[c] = append(all[c], time.Since(begin))
			}
		})
	}
	group.Wait()
	m.elapsed += time.Since(start)
	runtime.ReadMemStats(&after)
	m.allocs += after.Mallocs - before.Mallocs
	m.latencies = append(m.latencies, slices.Concat(all...)...)
}

// BenchmarkRatios compares idem with its lower bound in the same run. Rounds of the two alternate,
// so a machine that becomes slower affects both. It reports ratios and logs the numbers of each
// run.
func BenchmarkRatios(b *testing.B) {
	for _, network := range []struct {
		name  string
		delay time.Duration // each way
	}{{"loopback", 0}, {"rtt1ms", 500 * time.Microsecond}} {
		for _, clients := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/clients=%d", network.name, clients), func(b *testing.B) {
				dsn := pgtest.DSN(b)
				if network.delay > 0 {
					proxy := pgtest.Proxy(b, dsn)
					proxy.SetLatency(network.delay)
					dsn = proxy.DSN()
				}
				ratios(b, newBench(b, dsn), clients, network.delay == 0)
			})
		}
	}
}

// ratios only counts allocations if no proxy in the same process allocates too.
func ratios(b *testing.B, bm *bench, clients int, countAllocs bool) {
	works := []struct {
		name string
		do   func(context.Context) error
	}{{"plain", bm.plain}, {"first", bm.first}, {"select", bm.selects}, {"replay", bm.replay}}
	results := make([]measured, len(works))
	const rounds, perRound = 20, 400
	b.ResetTimer()
	for b.Loop() {
		for range rounds {
			for i, work := range works {
				results[i].run(b, clients, perRound/clients/4, work.do)
			}
		}
	}
	for i, work := range works {
		r := &results[i]
		fmt.Fprintf(os.Stderr, "  %-7s p50 %8.0f µs  %8.0f /s\n", work.name, r.p50()/1e3, r.throughput())
	}
	plain, first, selects, replay := &results[0], &results[1], &results[2], &results[3]
	b.ReportMetric(first.p50()/plain.p50(), "first/plain-p50")
	b.ReportMetric(first.throughput()/plain.throughput(), "first/plain-throughput")
	b.ReportMetric(replay.p50()/selects.p50(), "replay/select-p50")
	if countAllocs {
		b.ReportMetric(first.allocsPerOp()-plain.allocsPerOp(), "first-plain-allocs")
		b.ReportMetric(replay.allocsPerOp(), "replay-allocs")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHotKey measures replays of one key by many concurrent callers, which share one read.
func BenchmarkHotKey(b *testing.B) {
	bm := newBench(b, pgtest.DSN(b))
	var hot, floor measured
	b.ResetTimer()
	for b.Loop() {
		floor.run(b, 100, 20, bm.selects)
		hot.run(b, 100, 20, bm.replay)
	}
	b.ReportMetric(hot.throughput()/floor.throughput(), "replay/select-throughput")
	b.ReportMetric(hot.allocsPerOp(), "replay-allocs")
	b.ReportMetric(0, "ns/op")
}
