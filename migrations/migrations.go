// Package migrations contains the database schema of idem, as migrations for goose. Up applies
// them.
//
// If a service already uses goose, run these migrations with a separate provider and a separate
// version table. Then the two sets of migrations are independent of each other:
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

// FS contains the migration files, in its root directory.
//
//go:embed *.sql
var FS embed.FS
