package ledger

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"

	"github.com/idem-go/idem/migrations"
)

//go:embed schema.sql
var schema string

// Install makes the schema of idem and that of the torture in an empty database, and sets what lets lock conflicts come
// to an end soon.
func Install(ctx context.Context, dsn string) error {
	if err := migrate(ctx, dsn); err != nil {
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
		fmt.Sprintf("INSERT INTO torture.accounts (id) SELECT generate_series(0, %d)", Accounts-1),
		"ALTER DATABASE " + name + " SET deadlock_timeout = '20ms'",
		"ALTER DATABASE " + name + " SET lock_timeout = '2s'",
	} {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

func migrate(ctx context.Context, dsn string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName("idem_goose_version"),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
