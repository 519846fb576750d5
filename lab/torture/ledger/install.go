package ledger

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/migrations"
)

//go:embed schema.sql
var schema string

// Install creates the schema of idem and that of the torture in an empty database. It sets short
// lock and deadlock timeouts, so that lock conflicts end soon.
func Install(ctx context.Context, dsn string) error {
	if err := migrate.UpAt(ctx, dsn, migrations.FS); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	for _, sql := range []string{
		schema,
		fmt.Sprintf("INSERT INTO torture.accounts (id) SELECT generate_series(0, %d)", Accounts+BatchAccounts-1),
		"ALTER DATABASE " + name + " SET deadlock_timeout = '20ms'",
		"ALTER DATABASE " + name + " SET lock_timeout = '2s'",
	} {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}
