package promises_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/seal"
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

func (bm *bench) first(ctx context.Context) error {
	return bm.do(ctx, fmt.Sprint("key-of-some-length-", bm.n.Add(1)))
}

// BenchmarkRecord measures the disk space of a record with a response of 200 bytes after a vacuum,
// for docs/operate.md.
func BenchmarkRecord(b *testing.B) {
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

// BenchmarkSealing measures what a Sealer adds to a call in the process, without the database. A
// first run seals the response, and a replay opens it. There is no header, because encoding and
// decoding one costs the same without a Sealer.
func BenchmarkSealing(b *testing.B) {
	s := seal.New(keysOf("a"))
	key := db.NewKey(scope, "7f3c9a52-0d1e-4f0b-9a52-7f3c9a520d1e", hashA, "11111111-2222-4333-8444-555555555555", idem.DefaultTTL)
	for _, size := range []int{200, 1 << 10, 64 << 10} {
		complete := func() *db.Complete {
			return &db.Complete{Key: &key, State: db.Completed, Status: 201, Body: make([]byte, size)}
		}
		c := complete()
		b.Run(fmt.Sprintf("first/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			plain := *c
			for b.Loop() {
				sealed := plain
				if err := sealed.Seal(s); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := c.Seal(s); err != nil {
			b.Fatal(err)
		}
		loaded := db.Record{
			ExecutionID: key.ExecutionID, State: c.State, Status: c.Status, Body: c.Body, SealedBy: c.SealedBy, Closed: true,
		}
		b.Run(fmt.Sprintf("replay/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				opened := loaded
				if err := opened.Open(&key, s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
