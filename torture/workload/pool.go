package workload

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/torture/ledger"
)

// pool is one of the pools of a worker. Calls of different pools do not wait for one another in memory, so that duplicates
// meet in the database as well.
type pool struct {
	*pgxpool.Pool
	name string
}

// modes are the exec modes to choose from. A pooler in transaction mode and prepared statements go together only with a
// recent one.
func modes(pooled bool) []pgx.QueryExecMode {
	safe := []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe}
	if pooled {
		return safe
	}
	return append(safe, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec)
}

func openPools(ctx context.Context, c *Config) ([]*pool, error) {
	choice := modes(c.Pooled)
	var pools []*pool
	for n := range 2 {
		config, err := pgxpool.ParseConfig(c.DSN)
		if err != nil {
			return nil, err
		}
		config.MaxConns = int32(3 + 3*n)
		config.ConnConfig.ConnectTimeout = 2 * time.Second
		config.ConnConfig.RuntimeParams["application_name"] = ledger.Application(c.Pooled)
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
		pools = append(pools, &pool{opened, name})
	}
	return pools, nil
}
