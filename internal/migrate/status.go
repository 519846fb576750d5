package migrate

import (
	"context"
	"database/sql"
	"io/fs"

	"github.com/pressly/goose/v3"
)

// Status lists every migration in order. It changes nothing, not even where no migration has ever run, and waits for
// no lock.
func Status(ctx context.Context, db *sql.DB, files fs.FS) ([]Migration, error) {
	provider, err := newProvider(db, files)
	if err != nil {
		return nil, err
	}
	var begun bool // goose would make its table to find it empty
	if err := db.QueryRowContext(ctx, "SELECT pg_catalog.to_regclass('"+versionTable+"') IS NOT NULL").Scan(&begun); err != nil {
		return nil, err
	}
	if !begun {
		return pending(provider), nil
	}
	found, err := provider.Status(ctx)
	if err != nil {
		return nil, err
	}
	var all []Migration
	for _, status := range found {
		m := migrationOf(status.Source)
		m.AppliedAt = status.AppliedAt
		all = append(all, m)
	}
	return all, nil
}

func pending(provider *goose.Provider) []Migration {
	var all []Migration
	for _, source := range provider.ListSources() {
		all = append(all, migrationOf(source))
	}
	return all
}
