package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
)

// The model is an upper bound, so a snapshot keeps Postgres from reusing the space of old row
// versions during the test. Only one client writes: Postgres adds more pages than needed to a table
// that several clients extend at the same time.
func TestModel_BoundsTheStoredBytes(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ names, response int }{{45, 1200}, {150, 200}} {
		t.Run(fmt.Sprintf("%d bytes of names, response of %d", size.names, size.response), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			ctx := context.Background()
			const calls = 2000
			snapshot, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				t.Fatal(err)
			}
			defer snapshot.Rollback(ctx) //nolint:errcheck // it writes nothing
			if _, err := snapshot.Exec(ctx, "select from idem.records"); err != nil {
				t.Fatal(err)
			}
			body := []byte(strings.Repeat("b", size.response))
			for _, n := range rand.New(rand.NewPCG(1, 1)).Perm(calls) {
				key := fmt.Sprintf("%0*d", size.names-20, n)
				_, err := idem.Do(ctx, pool, "tenant-1/POST orders", key, idem.HashBytes(body), func(pgx.Tx) (idem.Response, error) {
					return idem.Response{Status: 201, Body: body}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			var heap, index float64
			err = pool.QueryRow(ctx, `select pg_table_size('idem.records')::float8, pg_indexes_size('idem.records')::float8`).Scan(&heap, &index)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("heap %.0f, index %.0f", heap/calls, index/calls)
			near(t, "heap", heap/calls, heapOf(float64(size.names), float64(size.response)), 0.1)
			// Ascending keys leave full index pages, random keys half-full ones.
			if most := indexOf(float64(size.names)) * 1.25; index/calls > most || index/calls < most/2.5 {
				t.Errorf("index: %.0f bytes per record, want %.0f to %.0f", index/calls, most/2.5, most)
			}
		})
	}
}

// The test takes the call with the least log: the model does not include page splits.
func TestModel_BoundsTheLoggedBytes(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, "full_page_writes=off", "autovacuum=off")
	if err := schema.UpAt(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Open(t, server.DSN())
	for _, size := range []struct{ names, response int }{{45, 1200}, {150, 200}} {
		ctx := t.Context()
		body := []byte(strings.Repeat("b", size.response))
		least := math.Inf(1)
		for n := range 20 {
			position := func() (lsn float64) {
				if err := pool.QueryRow(ctx, `select (pg_current_wal_insert_lsn() - '0/0')::float8`).Scan(&lsn); err != nil {
					t.Fatal(err)
				}
				return lsn
			}
			before := position()
			key := fmt.Sprintf("%0*d", size.names-20, 10_000*size.response+n)
			_, err := idem.Do(ctx, pool, "tenant-1/POST orders", key, idem.HashBytes(body), func(pgx.Tx) (idem.Response, error) {
				return idem.Response{Status: 201, Body: body}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			least = min(least, position()-before)
		}
		t.Logf("names of %d bytes, response of %d: %.0f bytes of log", size.names, size.response, least)
		near(t, "log", least, walOf(float64(size.names), float64(size.response)), 0.1)
	}
}

// near checks that got differs from want by at most a share of want.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > want*share {
		t.Errorf("%s: %.0f bytes per record, want %.0f", what, got, want)
	}
}

func TestPrintTable_MatchesTheDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	printTable(&table)
	if !strings.Contains(string(page), table.String()) {
		t.Errorf("docs/scale.md does not contain the output of go run ./lab/scale -table:\n%s", table.String())
	}
}
