package promises_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/seal"
)

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

// BenchmarkSealedCall compares sealed and plain calls with the database and a body of 1 KiB. Rounds
// of the two alternate.
func BenchmarkSealedCall(b *testing.B) {
	bm := newBench(b, pgtest.DSN(b))
	bm.resp = idem.Response{Status: 201, Header: map[string][]string{"Location": {"/orders/7"}}, Body: make([]byte, 1<<10)}
	call := func(key func() string, opts ...idem.Option) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := idemDo(ctx, bm.pool, scope, key(), hashA, func(tx pgx.Tx) (idem.Response, error) { return bm.business(tx) }, opts...)
			return err
		}
	}
	fresh := func() string { return fmt.Sprint("key-of-some-length-", bm.n.Add(1)) }
	plainKey, sealedKey := func() string { return "plain" }, func() string { return "sealed" }
	sealer := sealed("a")
	works := []struct {
		name string
		do   func(context.Context) error
	}{
		{"first", call(fresh)}, {"first, sealed", call(fresh, sealer)},
		{"replay", call(plainKey)}, {"replay, sealed", call(sealedKey, sealer)},
	}
	for _, work := range works { // the first call for a key that is replayed later
		if err := work.do(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	results := make([]measured, len(works))
	b.ResetTimer()
	for b.Loop() {
		for range 20 {
			for i, work := range works {
				results[i].run(b, 1, 200, work.do)
			}
		}
	}
	for i, work := range works {
		r := &results[i]
		fmt.Fprintf(os.Stderr, "  %-14s p50 %8.1f µs  %5.1f allocs\n", work.name, r.p50()/1e3, r.allocsPerOp())
	}
	for i, name := range []string{"first", "replay"} {
		plain, sealed := &results[2*i], &results[2*i+1]
		b.ReportMetric((sealed.p50()-plain.p50())/1e3, name+"-added-µs")
		b.ReportMetric(sealed.allocsPerOp()-plain.allocsPerOp(), name+"-added-allocs")
	}
	b.ReportMetric(0, "ns/op")
}
