package command_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
)

// files returns the names of all migrations.
func files(t *testing.T) []string {
	t.Helper()
	found, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestMigrate_UpAndDown(t *testing.T) {
	t.Parallel()
	d := &harness{t: t, dsn: pgtest.EmptyDSN(t)}
	all := files(t)
	d.idem("migrate", "status").want(t, 3, all[0], "missing")
	d.idem("migrate", "status", "--json").want(t, 3, `"name": "`+all[0]+`"`, `"applied_at": null`)
	d.idem("migrate", "up").want(t, 5, "nothing was changed", "applies "+all[0], "--yes")
	d.idem("migrate", "status").want(t, 3)
	d.idem("migrate", "up", "--yes").want(t, 0, "applied "+all[len(all)-1])
	d.idem("migrate", "status", "--json").want(t, 0, `"name": "`+all[len(all)-1]+`"`, `"applied_at": "`)
	d.idem("migrate", "up").want(t, 0, "nothing to do")
	d.idem("list").want(t, 0, "no records")

	last := all[len(all)-1]
	d.idem("migrate", "down").want(t, 5, "undoes "+last, "a retry executes again")
	for i := range all {
		d.idem("migrate", "down", "-y").want(t, 0, "undid "+all[len(all)-1-i])
	}
	d.idem("migrate", "down", "-y").want(t, 0, "nothing to do")
	d.idem("list").want(t, 1, "idem migrate up")
}

// A restore of a single schema can leave the version table without the schema idem.
func TestMigrate_ReportsALostSchema(t *testing.T) {
	t.Parallel()
	d := &harness{t: t, dsn: pgtest.DSN(t)}
	d.idem("migrate", "up", "--yes").want(t, 0, "up to date")
	conn, err := pgx.Connect(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "DROP SCHEMA idem CASCADE"); err != nil {
		t.Fatal(err)
	}
	d.idem("migrate", "up", "--yes").want(t, 5, "there is no idem.records", "DROP TABLE public.idem_goose_version")
}

// The documentation recommends an owner of the schema that cannot log in.
func TestMigrate_ActsAsTheOwnerRole(t *testing.T) {
	t.Parallel()
	d := &harness{t: t, dsn: pgtest.EmptyDSN(t)}
	conn, err := pgx.Connect(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	owner := "owner_" + strings.ReplaceAll(strings.ToLower(t.Name()), "/", "_")
	owner = owner[:min(len(owner), 63)]
	for _, sql := range []string{
		"DROP ROLE IF EXISTS " + owner, "CREATE ROLE " + owner,
		fmt.Sprintf("DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %%I TO %s', current_database()); END $$", owner),
		"GRANT USAGE, CREATE ON SCHEMA public TO " + owner,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), d.dsn)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "DROP OWNED BY "+owner+" CASCADE; DROP ROLE "+owner); err != nil {
			t.Error(err)
		}
	})
	d.idem("migrate", "up", "--yes", "--role", owner).want(t, 0, "applied")
	var foreign int
	err = conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'idem' AND c.relkind IN ('r', 'S') AND c.relowner <> $1::regrole OR c.relname = 'idem_goose_version' AND c.relowner <> $1::regrole`, owner).Scan(&foreign)
	if err != nil || foreign != 0 {
		t.Errorf("%d tables and sequences have another owner, %v", foreign, err)
	}
}
