// Package schema applies the migrations of idem to a test database.
package schema

import (
	"context"

	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/migrations"
)

// UpAt applies all migrations of idem to the database at the address dsn.
func UpAt(ctx context.Context, dsn string) error { return migrate.UpAt(ctx, dsn, migrations.FS) }
