package migrate

import (
	"path"
	"time"

	"github.com/pressly/goose/v3"
)

// Migration is one step of the schema.
type Migration struct {
	Version   int64
	Name      string    // of its file
	AppliedAt time.Time // only in a status; zero: not applied
}

func migrationOf(source *goose.Source) Migration {
	return Migration{Version: source.Version, Name: path.Base(source.Path)}
}

func applied(results []*goose.MigrationResult) []Migration {
	var all []Migration
	for _, r := range results {
		all = append(all, migrationOf(r.Source))
	}
	return all
}
