package command

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/migrations"
)

type migrateCommand struct {
	Up     migrateUpCommand     `cmd:"" help:"Apply the missing migrations."`
	Down   migrateDownCommand   `cmd:"" help:"Undo the latest migration, and delete its data."`
	Status migrateStatusCommand `cmd:"" help:"List the migrations. The exit code is 3 if one is missing."`
}

type (
	migrateUpCommand struct {
		owner
		confirmFlag
	}
	migrateDownCommand struct {
		owner
		confirmFlag
	}
	migrateStatusCommand struct{ owner }
)

// owner has the flag for the role that owns the tables.
type owner struct {
	Role string `placeholder:"ROLE" help:"Act as this role, which then owns the schema. Your role must be a member of it."`
}

// shownMigrations returns the JSON document of migrations.
func shownMigrations(all []migrate.Migration) []map[string]any {
	shown := []map[string]any{}
	for _, m := range all {
		shown = append(shown, map[string]any{"version": m.Version, "name": m.Name, "applied_at": timeOrNil(m.AppliedAt)})
	}
	return shown
}

// config returns the configuration of a pool whose sessions run as the role of --role. That role
// then owns the tables, so that the role of the program does not own them and cannot alter them.
func (o owner) config(s *session) (*pgxpool.Config, error) {
	config, err := s.globals.Config(s.Getenv, s.name)
	if err == nil && o.Role != "" {
		config.ConnConfig.RuntimeParams["role"] = o.Role
	}
	return config, err
}

// status returns all migrations, and a database/sql handle to run them. The caller closes the
// handle.
func (o owner) status(s *session) (*sql.DB, []migrate.Migration, error) {
	config, err := o.config(s)
	if err != nil {
		return nil, nil, err
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	all, err := migrate.Status(s.ctx, db, migrations.FS)
	if err != nil {
		db.Close()
	}
	return db, all, err
}

// Run applies the pending migrations. If none is pending, it checks that the tables exist.
func (c *migrateUpCommand) Run(s *session) error {
	db, all, err := c.status(s)
	if err != nil {
		return err
	}
	defer db.Close()
	pending := slices.DeleteFunc(all, func(m migrate.Migration) bool { return !isPending(m) })
	if len(pending) == 0 {
		if err := checkSchemaExists(s, db); err != nil {
			return err
		}
	} else if err := c.ask(s, "applies "+names(pending)); err != nil {
		return err
	}
	s.progress("applying %d migrations", len(pending))
	applied, err := migrate.Up(uninterruptible(s), db, migrations.FS)
	s.progress("")
	if err != nil {
		return err
	}
	return s.show(shownMigrations(applied), func(p *page.Page) {
		if len(applied) == 0 {
			p.Printf("nothing to do: the schema is up to date\n")
		}
		for _, m := range applied {
			p.Printf("applied %s\n", m.Name)
		}
	})
}

// uninterruptible returns a context that a signal does not cancel. So a migration that has begun
// runs to its end and releases its lock. uninterruptible also extends the grace period of the
// command after a signal.
func uninterruptible(s *session) context.Context {
	s.isUninterruptible.Store(true)
	return context.WithoutCancel(s.ctx)
}

// isPending reports whether a migration is not applied.
func isPending(m migrate.Migration) bool { return m.AppliedAt.IsZero() }

// checkSchemaExists returns an error if all migrations count as applied, but the table idem.records
// is missing. This happens if the schema was dropped or not restored, but the version table was
// kept.
func checkSchemaExists(s *session, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(s.ctx, "SELECT to_regclass('idem.records') IS NOT NULL").Scan(&there); err != nil || there {
		return err
	}
	return unchanged("nothing was applied: by the table public.idem_goose_version all migrations are applied, but there is no idem.records. " +
		"Restore the schema idem from a backup; or, if its records are lost, DROP TABLE public.idem_goose_version and run the command again")
}

// names joins the names of migrations for a question or a message.
func names(all []migrate.Migration) string {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// Run undoes the latest migration after confirmation, and deletes the data in its tables.
func (c *migrateDownCommand) Run(s *session) error {
	db, all, err := c.status(s)
	if err != nil {
		return err
	}
	defer db.Close()
	applied := slices.DeleteFunc(all, isPending)
	if len(applied) == 0 {
		return s.show(shownMigrations(nil), func(p *page.Page) { p.Printf("nothing to do: no migration is applied\n") })
	}
	will := fmt.Sprintf("undoes %s and deletes all data in its tables; a key without a record is new, and a retry executes again",
		applied[len(applied)-1].Name)
	if err := c.ask(s, will); err != nil {
		return err
	}
	undone, err := migrate.Down(uninterruptible(s), db, migrations.FS)
	if err != nil {
		return err
	}
	var list []migrate.Migration
	if undone != nil {
		list = append(list, *undone)
	}
	return s.show(shownMigrations(list), func(p *page.Page) { p.Printf("undid %s\n", names(list)) })
}

// Run lists the migrations. It returns errFound if one is pending.
func (c *migrateStatusCommand) Run(s *session) error {
	db, all, err := c.status(s)
	if err != nil {
		return err
	}
	defer db.Close()
	err = s.show(shownMigrations(all), func(p *page.Page) {
		(&table[migrate.Migration]{columns: page.Columns("MIGRATION", "APPLIED"), row: func(p *page.Page, m *migrate.Migration) []string {
			applied := p.Red("missing")
			if !m.AppliedAt.IsZero() {
				applied = page.Time(m.AppliedAt)
			}
			return []string{m.Name, applied}
		}}).print(p, all)
	})
	if err == nil && slices.ContainsFunc(all, isPending) {
		return errFound
	}
	return err
}
