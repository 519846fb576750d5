package migrations_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/lab/optional"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/migrations"
)

func TestPsql_AppliesMissingMigrations(t *testing.T) {
	t.Parallel()
	optional.Program(t, "psql")
	psql := func(dsn string) error {
		out, err := exec.CommandContext(t.Context(), "sh", "psql.sh", dsn).CombinedOutput()
		if len(out) > 0 {
			t.Errorf("psql.sh says %s", out)
		}
		return err
	}
	up := func(dsn string) error { return migrate.UpAt(context.Background(), dsn, migrations.FS) }
	down := func(dsn string) error {
		db, err := migrate.Open(dsn)
		if err != nil {
			return err
		}
		_, err = migrate.Down(context.Background(), db, migrations.FS)
		return errors.Join(err, db.Close())
	}
	for name, steps := range map[string][]func(string) error{
		"twice":             {psql, psql},
		"goose behind it":   {psql, up, psql},
		"goose before it":   {up, psql, up},
		"one is missing":    {up, down, psql, up},
		"one is taken back": {psql, down, psql, up},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.EmptyDSN(t)
			for n, step := range steps {
				if err := step(dsn); err != nil {
					t.Fatalf("step %d: %v", n, err)
				}
			}
			db, err := migrate.Open(dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			all, err := migrate.Status(t.Context(), db, migrations.FS)
			if err != nil || len(all) == 0 {
				t.Fatal(all, err)
			}
			for _, m := range all {
				if m.AppliedAt.IsZero() {
					t.Errorf("%v counts as missing", m)
				}
			}
			if _, err := db.ExecContext(t.Context(), "SELECT FROM idem.records, idem.operations, idem.inbox"); err != nil {
				t.Error(err)
			}
		})
	}
}
