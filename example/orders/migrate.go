package main

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/idem-go/idem/migrations"
)

//go:embed migrations/*.sql
var ownMigrations embed.FS

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	own, err := fs.Sub(ownMigrations, "migrations")
	if err != nil {
		return err
	}
	return migrateBoth(ctx, pool, own, "orders_goose_version")
}

// migrateBoth applies two sets of migrations: the migrations of idem, and own, the migrations of a
// service. Each set has its own version table, so that the version numbers cannot collide. Several
// instances may start at the same time: one migrates and the others wait.
func migrateBoth(ctx context.Context, pool *pgxpool.Pool, own fs.FS, versionTable string) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close() // the pool stays open
	if err := migrateUp(ctx, db, migrations.FS, "public.idem_goose_version"); err != nil {
		return fmt.Errorf("migrate idem: %w", err)
	}
	if err := migrateUp(ctx, db, own, versionTable); err != nil {
		return fmt.Errorf("migrate the service: %w", err)
	}
	return nil
}

// migrateUp applies a set of migrations while its session holds an advisory lock. Behind a pooler
// in transaction mode a client has no session of its own. There, migrate over a direct connection
// or use lock.NewPostgresTableLocker.
func migrateUp(ctx context.Context, db *sql.DB, files fs.FS, versionTable string) error {
	const everySecond, forTwoMinutes = 1, 120
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(everySecond, forTwoMinutes))
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable),
		goose.WithSessionLocker(locker),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
