// Package schema applies the migrations of idem to a test database.
package schema

import (
	"context"

	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/migrations"
)

// UpAt applies all migrations at the address of a database.
func UpAt(ctx context.Context, dsn string) error { return migrate.UpAt(ctx, dsn, migrations.FS) }
