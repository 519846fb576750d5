// Package migrations holds the schema of idem as goose migrations. Up applies them.
//
// A service that has a goose of its own runs them with a provider and a version table of their own, so that they never meet the
// migrations of the service:
//
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
//		goose.WithTableName("public.idem_goose_version"),
//		goose.WithDisableGlobalRegistry(true))
//	...
//	_, err = provider.Up(ctx)
//
// psql.sh applies them with psql alone. The part of each file between "-- +goose Up" and "-- +goose Down" is plain SQL for another tool.
package migrations

import "embed"

// FS holds the migration files at its root.
//
//go:embed *.sql
var FS embed.FS
