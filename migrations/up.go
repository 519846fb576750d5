package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem/internal/migrate"
)

// Up migrates the database of a pool to the schema of this version of idem, as the user of the
// pool. A service may call Up whenever it starts, because Up skips migrations that have been
// applied. If several processes call it at the same time, one of them migrates and the others wait.
// Up opens two connections of its own, with the settings and the hooks of the pool, and uses no
// connection of the pool.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	config := pool.Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // a pooler in transaction mode loses prepared statements
	var hooks []stdlib.OptionOpenDB
	if config.BeforeConnect != nil {
		hooks = append(hooks, stdlib.OptionBeforeConnect(config.BeforeConnect))
	}
	if config.AfterConnect != nil {
		hooks = append(hooks, stdlib.OptionAfterConnect(config.AfterConnect))
	}
	db := stdlib.OpenDB(*config.ConnConfig, hooks...)
	_, err := migrate.Up(ctx, db, FS)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return nil
}
