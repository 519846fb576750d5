package workload

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/checkout"
	"github.com/idem-go/idem/lab/torture/history"
)

// workOnOperations runs a worker of package checkout. It does not look for leaked goroutines,
// because the presence of a process outlives its users by some seconds.
func workOnOperations(stop context.Context, c *Config, writer *history.Writer) error {
	pools, err := openPools(context.Background(), c)
	if err != nil {
		return err
	}
	var plain []*pgxpool.Pool
	for _, p := range pools {
		plain = append(plain, p.Pool)
		defer p.Close()
	}
	config := checkout.Config{
		Slot: c.Slot, Incarnation: c.Incarnation, Seed: c.Seed, Start: c.Start, Pooled: c.Pooled, Bank: c.Bank,
		Callers: c.Goroutines, Keys: c.Keys, KeyLife: c.KeyLife, Calls: c.Ops,
	}
	if c.Finish > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), c.Finish)
		defer cancel()
		return checkout.Finish(ctx, config, plain[1], writer)
	}
	return checkout.Work(stop, config, plain, writer)
}
