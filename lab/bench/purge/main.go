// Command purge measures a sweep over many records, half of them expired, while calls run in the
// foreground. It also measures the size of the table after its records have been replaced several
// times. It prints the measurements and whether they meet the requirements.
//
//	make bench/purge                                   ten million records, a quarter of an hour
//	make bench/purge BENCH='-records 1000000'          in five minutes
//
// The database at DATABASE_URL must not be used for anything else: purge deletes its records.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

type options struct {
	records int64
	rate    int
	turn    time.Duration
	live    int64
	share   float64
}

func main() {
	var o options
	flag.Int64Var(&o.records, "records", 10_000_000, "how many there are, of which every second has expired")
	flag.IntVar(&o.rate, "rate", 300, "calls a second in the foreground")
	flag.DurationVar(&o.turn, "turn", 10*time.Second, "how long calls are measured with the sweep, and then without it")
	flag.Int64Var(&o.live, "live", 200_000, "how many records are retained while they are renewed ten times; 0 leaves that out")
	flag.Float64Var(&o.share, "share", 0, "of its time in which the sweep works (default: as purge.Options has it)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "purge:", err)
		os.Exit(1)
	}
}

// errMissed is returned if a requirement was not met.
var errMissed = errors.New("a bar was not met")

func (o *options) run(ctx context.Context) error {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		return errors.New("DATABASE_URL is not set: use `make bench/purge`")
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	h := &house{pool: pool, options: o}
	if err := h.describe(ctx); err != nil {
		return err
	}
	swept, err := h.sweep(ctx)
	if err != nil {
		return err
	}
	renewed, err := h.renew(ctx)
	if err != nil {
		return err
	}
	if !swept || !renewed {
		return errMissed
	}
	return nil
}
