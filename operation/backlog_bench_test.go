package operation_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// Two Workers come back to 3,000 due operations, as after an outage. The floor is the same write with Do by as many goroutines.
func BenchmarkBacklog(b *testing.B) {
	const due = 3000
	b.Run("floor", func(b *testing.B) {
		s := newShop(b, maxConns(32))
		for n := 0; b.Loop(); n++ {
			var next atomic.Int64
			var calling sync.WaitGroup
			for range 32 {
				calling.Go(func() {
					for i := next.Add(1); i <= due; i = next.Add(1) {
						_, err := idem.Do(b.Context(), s.pool, scope, fmt.Sprint(n, "/", i), hashA, func(tx pgx.Tx) (idem.Response, error) {
							return created, writeUndo("confirm")(tx)
						})
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			calling.Wait()
		}
		b.ReportMetric(float64(due*b.N)/b.Elapsed().Seconds(), "calls/s")
	})
	for _, concurrency := range []int{16, 64} {
		b.Run(fmt.Sprint("workers of ", concurrency), func(b *testing.B) {
			s := newShop(b, maxConns(int32(concurrency)))
			pools := []*pgxpool.Pool{s.pool, pgtest.Open(b, s.dsn, maxConns(int32(concurrency)))}
			var left atomic.Int64
			var done chan struct{}
			d := operation.Define("backlog", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Tx(op, "confirm", write("confirm"))
				if left.Add(-1) == 0 {
					close(done)
				}
				return created, err
			})
			var took time.Duration
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				s.startMany(b, d, n, due)
				left.Store(due)
				done = make(chan struct{})
				ctx, stop := context.WithCancel(b.Context())
				var working sync.WaitGroup
				begin := time.Now()
				b.StartTimer()
				for _, pool := range pools {
					working.Go(func() {
						if err := operation.NewWorker(pool, operation.WorkerConfig{Concurrency: concurrency}, d).Run(ctx); err != nil {
							b.Error(err)
						}
					})
				}
				await(b, "all operations", done)
				took += time.Since(begin)
				stop()
				working.Wait()
			}
			b.ReportMetric(float64(due*b.N)/took.Seconds(), "operations/s")
		})
	}
}

func (s *shop) startMany(b *testing.B, d *operation.Definition[int], turn, n int) {
	b.Helper()
	err := pgx.BeginFunc(b.Context(), s.pool, func(tx pgx.Tx) error {
		for i := range n {
			if _, err := d.Start(b.Context(), tx, scope, fmt.Sprint(turn, "/", i), hashA, 0); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
