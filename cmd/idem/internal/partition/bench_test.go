package partition_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/cmd/idem/internal/partition"
	"github.com/idem-go/idem/lab/pgtest"
)

var (
	records = flag.Int("records", 100_000, "how many records the benchmark has")
	share   = flag.Float64("share", 0.5, "partition.Config.Share")
)

// BenchmarkPartition partitions a table with many records while four clients call, and reports the
// latency of their calls.
func BenchmarkPartition(b *testing.B) {
	pool := pgtest.New(b)
	calling := func(do func()) []time.Duration { return calling(b, pool, do) }
	for _, sql := range []string{
		`create table ledger (key text not null, execution_id uuid not null)`,
		fmt.Sprintf(`insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, completed_at, body)
			select 'tenant-' || n %% 100, md5(n::text), decode(md5(n::text) || md5(n::text), 'hex'), md5(n::text)::uuid,
				now(), now() + interval '12 h', 'completed', 201, now(), convert_to(repeat('x', 100), 'UTF8') from generate_series(1, %d) n`, *records),
		"vacuum analyze idem.records", "checkpoint",
	} {
		if _, err := pool.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		before := calling(func() { time.Sleep(10 * time.Second) })
		var report partition.Report
		beside := calling(func() {
			var err error
			report, err = partition.Run(b.Context(), pool, partition.Config{Table: "records", Parts: 16, Share: *share, Patience: time.Minute})
			if err != nil {
				b.Fatal(err)
			}
		})
		b.ReportMetric(report.Duration.Seconds(), "s")
		b.ReportMetric(float64(report.Longest.Milliseconds()), "ms-lock")
		for name, calls := range map[string][]time.Duration{"before": before, "beside": beside} {
			for rank, at := range map[string]int{"p50": len(calls) / 2, "p99": len(calls) * 99 / 100, "max": len(calls) - 1} {
				b.ReportMetric(float64(calls[at].Microseconds())/1000, "ms-"+rank+"-"+name)
			}
		}
	}
}

// calling returns the sorted durations of the calls of four clients while work runs.
func calling(b *testing.B, pool *pgxpool.Pool, do func()) []time.Duration {
	ctx, stop := context.WithCancel(b.Context())
	var mu sync.Mutex
	var took []time.Duration
	var group sync.WaitGroup
	for client := range 4 {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				begin := time.Now()
				if _, err := charge(context.WithoutCancel(ctx), pool, fmt.Sprint(begin.UnixNano(), "-", client, "-", n)); err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(begin))
				mu.Unlock()
			}
		})
	}
	do()
	stop()
	group.Wait()
	slices.Sort(took)
	return took
}
