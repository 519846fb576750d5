// Package migrations holds the schema of idem as goose migrations. Up applies them.
//
// If a service already uses goose, run these migrations with a separate provider and a separate
// version table. They are then independent of the migrations of the service:
//
//	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
//		goose.WithTableName("public.idem_goose_version"),
//		goose.WithDisableGlobalRegistry(true))
//	...
//	_, err = provider.Up(ctx)
//
// psql.sh applies the migrations with psql, without goose. For any other tool, take the part of
// each file between "-- +goose Up" and "-- +goose Down", which is plain SQL.
package migrations

import "embed"

// FS holds the migration files at its root.
//
//go:embed *.sql
var FS embed.FS
