package workload

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/messaging"
)

// workOnMessages runs a worker of package messaging. It does not look for leaked goroutines,
// because the presence of a process outlives its users by some seconds.
func workOnMessages(stop context.Context, c *Config, writer *history.Writer) error {
	pools, err := openPools(context.Background(), c)
	if err != nil {
		return err
	}
	var plain []*pgxpool.Pool
	for _, p := range pools {
		plain = append(plain, p.Pool)
		defer p.Close()
	}
	config := messaging.Config{
		Slot: c.Slot, Incarnation: c.Incarnation, Pooled: c.Pooled, Broker: c.Broker, Writers: max(c.Goroutines/4, 1), Keys: c.Keys, Calls: c.Ops, Quiet: c.Quiet, Direct: c.Direct,
	}
	if c.Finish > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), c.Finish)
		defer cancel()
		return messaging.Finish(ctx, config, plain, writer)
	}
	return messaging.Work(stop, config, plain, writer)
}
