package purge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/examples"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/purge"
)

// The examples need a database, so go test does not run them as examples: TestExamples does.
var (
	ctx  = context.Background()
	pool *pgxpool.Pool
)

// In a service, beside whatever else it does. However many processes do so, one sweeps at a time.
func ExampleRun() {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		ended <- purge.Run(ctx, pool, purge.Options{
			Done: func(rep purge.Report, err error) { fmt.Println(rep.Deleted, "deleted,", rep.Kept, "kept", err); stop() },
		})
	}()
	fmt.Println(<-ended)
	// Prints:
	// 0 deleted, 2 kept <nil>
	// <nil>
}

// By hand, or from a scheduler. The grace is an hour by default; a service should leave it so.
func ExampleOnce() {
	options := purge.Options{Grace: time.Microsecond, DryRun: true}
	for range 2 {
		rep, err := purge.Once(ctx, pool, options)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(rep.DryRun, rep.Deleted, rep.Kept, rep.Tables[0].Ended)
		options.DryRun = false
	}
	// Prints:
	// true 1 1 finished
	// false 1 1 finished
}

func TestExamples(t *testing.T) {
	examples.Run(t, map[string]func(){"Run": ExampleRun, "Once": ExampleOnce}, func(t *testing.T, _ string) {
		pool = pgtest.New(t)
		for key, ttl := range map[string]time.Duration{"short": time.Millisecond, "long": time.Hour} {
			_, err := idem.Do(ctx, pool, "orders", key, idem.HashBytes(), func(pgx.Tx) (idem.Response, error) {
				return idem.Response{Status: 201}, nil
			}, idem.WithTTL(ttl))
			if err != nil {
				t.Fatal(err)
			}
		}
		for expired := 0; expired == 0; {
			err := pool.QueryRow(ctx, "select count(*) from idem.records where expires_at < now() - '1 ms'::interval").Scan(&expired)
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
