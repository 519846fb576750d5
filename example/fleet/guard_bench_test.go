package fleet_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/lab/pgtest"
)

// BenchmarkGuard measures what the trigger adds to the claims of a transaction, in turns with the same without it: for docs/scale.md.
func BenchmarkGuard(b *testing.B) {
	pool := pgtest.New(b)
	ctx := b.Context()
	c := fleet.Cluster{Name: "west", Pool: pool}
	if err := fleet.Install(ctx, c, nil); err != nil {
		b.Fatal(err)
	}
	if err := fleet.Place(ctx, c, tenant); err != nil {
		b.Fatal(err)
	}
	const claims = 2000
	turn := func(guard string) time.Duration {
		var took time.Duration
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "alter table idem.records "+guard+" trigger fleet"); err != nil {
				return err
			}
			began := time.Now()
			_, err := tx.Exec(ctx, `do $$ begin for n in 1 .. 2000 loop
				insert into idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
				values ('acme/x', gen_random_uuid()::text, '\x', gen_random_uuid(), now(), now(), 'processing'); end loop; end $$`)
			took = time.Since(began)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		return took
	}
	var more []float64
	var with []float64
	for b.Loop() {
		bare, guarded := turn("disable"), turn("enable")
		more, with = append(more, float64(guarded-bare)/claims/1000), append(with, float64(guarded)/float64(bare))
	}
	slices.Sort(more)
	slices.Sort(with)
	b.ReportMetric(more[len(more)/2], "µs/claim")
	b.ReportMetric(with[len(with)/2], "of-a-bare-insert")
	b.ReportMetric(0, "ns/op")
}
