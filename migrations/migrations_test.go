package migrations_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
)

// TestMigrations_RoundTrip: every migration can be taken back, leaves nothing behind, and can then be applied again.
func TestMigrations_RoundTrip(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.EmptyDSN(t))
	provider := newProvider(t, db)
	if _, err := provider.GetDBVersion(t.Context()); err != nil { // creates goose's own table
		t.Fatal(err)
	}

	empty := objects(t, db)
	for _, source := range provider.ListSources() {
		before := objects(t, db)
		if _, err := provider.UpByOne(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := objects(t, db)
		if cmp.Equal(before, after) {
			t.Errorf("%s: creates nothing that this test would miss", source.Path)
		}
		if _, err := provider.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, objects(t, db)); diff != "" {
			t.Errorf("%s: down does not undo up (-before +after):\n%s", source.Path, diff)
		}
		if _, err := provider.UpByOne(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(after, objects(t, db)); diff != "" {
			t.Errorf("%s: up again is not the same (-first +second):\n%s", source.Path, diff)
		}
	}

	if _, err := provider.DownTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(empty, objects(t, db)); diff != "" {
		t.Errorf("down to 0 leaves something behind (-empty +now):\n%s", diff)
	}
}

// TestMigrations_TouchOnlyTheirSchema: nothing is created outside the schema idem but goose's own table.
func TestMigrations_TouchOnlyTheirSchema(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.EmptyDSN(t))
	provider := newProvider(t, db)
	if _, err := provider.GetDBVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := objects(t, db)
	if _, err := provider.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := slices.DeleteFunc(objects(t, db), func(object string) bool { return strings.HasPrefix(object, "idem.") })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("objects outside the schema idem (-before +after):\n%s", diff)
	}
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newProvider(t *testing.T, db *sql.DB) *goose.Provider {
	t.Helper()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName("public.idem_goose_version"),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

// objects names everything in a database that a migration could leave behind, as "schema.name: kind". TOAST tables go
// with their tables, and have names that differ every time.
func objects(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `
		SELECT format('%s.%s: %s', nspname, name, kind)
		FROM pg_namespace n,
		LATERAL (
			SELECT '' AS name, 'schema' AS kind
			UNION ALL
			SELECT relname, 'relation of kind ' || relkind::text FROM pg_class WHERE relnamespace = n.oid
			UNION ALL
			SELECT typname, 'type' FROM pg_type WHERE typnamespace = n.oid
			UNION ALL
			SELECT oid::regprocedure::text, 'function' FROM pg_proc WHERE pronamespace = n.oid
		) AS objects
		WHERE nspname <> 'pg_toast'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
