package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
)

// pool is one of the two pools of a worker. Calls of different pools do not wait for one another in
// memory, so that duplicates of one process also meet in the database.
type pool struct {
	*pgxpool.Pool
	name string
}

// modes returns the exec modes to choose from. A pooler in transaction mode allows prepared
// statements only if it supports them itself.
func modes(c *Config) []pgx.QueryExecMode {
	safe := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe}
	switch {
	case c.Pooled && c.Prepares:
		return append(safe, pgx.QueryExecModeCacheStatement)
	case c.Pooled:
		return safe
	}
	return append(safe, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec)
}

// openPools opens the pools for the calls.
func openPools(ctx context.Context, c *Config) ([]*pool, error) {
	var pools []*pool
	for n := range 2 {
		opened, err := openPool(ctx, c, n, int32(3+3*n))
		if err != nil {
			return nil, err
		}
		pools = append(pools, opened)
	}
	return pools, nil
}

// openPool opens the pool with number n.
func openPool(ctx context.Context, c *Config, n int, maxConns int32) (*pool, error) {
	config, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = maxConns
	config.ConnConfig.ConnectTimeout = 2 * time.Second
	config.ConnConfig.RuntimeParams["application_name"] = fmt.Sprint(ledger.Application(c.Pooled), " ", history.NewOp(c.Slot, c.Incarnation, 0).Process())
	choice := modes(c)
	mode := choice[(c.Slot+c.Incarnation+n)%len(choice)]
	config.ConnConfig.DefaultQueryExecMode = mode
	opened, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	name := mode.String()
	if c.Pooled {
		name += ", pooler"
	}
	return &pool{opened, name}, nil
}
