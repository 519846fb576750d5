package command

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

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

func (migrateCommand) Help() string {
	return `The migrations are those of package migrations. Their version table is public.idem_goose_version. Any number of processes may run them at
once, also through a pooler: one works, and the others wait.

Example: idem migrate up --yes`
}

type (
	migrateUpCommand struct {
		owner
		consent
	}
	migrateDownCommand struct {
		owner
		consent
	}
	migrateStatusCommand struct{ owner }
)

// owner has the flag for the role that owns the tables.
type owner struct {
	Role string `placeholder:"ROLE" help:"Act as this role, which then owns the schema. Your role must be a member of it."`
}

func (migrateUpCommand) Help() string {
	return "Example: idem migrate up --yes -d app --role idem_migrate"
}

func (migrateDownCommand) Help() string { return "Example: idem migrate down -d scratch" }

func (migrateStatusCommand) Help() string { return "Example: idem migrate status --json" }

// shownMigration is a migration in JSON.
type shownMigration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"`
}

func newShownMigration(m migrate.Migration) shownMigration {
	shown := shownMigration{Version: m.Version, Name: m.Name}
	if !m.AppliedAt.IsZero() {
		at := m.AppliedAt.UTC()
		shown.AppliedAt = &at
	}
	return shown
}

func newShownMigrations(all []migrate.Migration) []shownMigration {
	shown := []shownMigration{}
	for _, m := range all {
		shown = append(shown, newShownMigration(m))
	}
	return shown
}

// database opens a database/sql connection for the migrations. The sessions run as the role of
// --role.
func (o owner) database(s *session) (*sql.DB, error) {
	config, err := s.globals.Config(s.Getenv, s.name)
	if err != nil {
		return nil, err
	}
	if o.Role != "" {
		config.ConnConfig.RuntimeParams["role"] = o.Role
	}
	return stdlib.OpenDB(*config.ConnConfig), nil
}

// Run applies the pending migrations. If none is pending, it checks that the tables exist.
func (c *migrateUpCommand) Run(s *session) error {
	db, err := c.database(s)
	if err != nil {
		return err
	}
	defer db.Close()
	pending, err := missing(s, db)
	if err != nil {
		return err
	}
	if len(pending) == 0 {
		if err := lost(s, db); err != nil {
			return err
		}
	} else if err := c.ask(s, "applies "+names(pending)); err != nil {
		return err
	}
	s.progress("applying %d migrations", len(pending))
	applied, err := migrate.Up(unbroken(s), db, migrations.FS)
	s.progress("")
	if err != nil {
		return err
	}
	return s.show(newShownMigrations(applied), func(p *page.Page) {
		if len(applied) == 0 {
			p.Printf("nothing to do: the schema is up to date\n")
		}
		for _, m := range applied {
			p.Printf("applied %s\n", m.Name)
		}
	})
}

// unbroken returns a context that a signal does not cancel. A migration that has begun runs to its
// end and releases its lock. It also gives the command more time to end after a signal.
func unbroken(s *session) context.Context {
	s.isUnbroken.Store(true)
	return context.WithoutCancel(s.ctx)
}

// missing returns the migrations that are not applied.
func missing(s *session, db *sql.DB) ([]migrate.Migration, error) {
	all, err := migrate.Status(s.ctx, db, migrations.FS)
	var pending []migrate.Migration
	for _, m := range all {
		if m.AppliedAt.IsZero() {
			pending = append(pending, m)
		}
	}
	return pending, err
}

// lost returns an error if all migrations count as applied, but the table idem.records is missing.
// That is so if the schema was dropped or not restored, and the version table was kept.
func lost(s *session, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(s.ctx, "SELECT to_regclass('idem.records') IS NOT NULL").Scan(&there); err != nil || there {
		return err
	}
	return refusedError{"nothing was applied: by the table public.idem_goose_version all migrations are applied, but there is no idem.records. " +
		"Restore the schema idem from a backup; or, if its records are lost, DROP TABLE public.idem_goose_version and run the command again"}
}

func names(all []migrate.Migration) string {
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// Run undoes the latest migration after confirmation, and deletes the data in its tables.
func (c *migrateDownCommand) Run(s *session) error {
	db, err := c.database(s)
	if err != nil {
		return err
	}
	defer db.Close()
	all, err := migrate.Status(s.ctx, db, migrations.FS)
	if err != nil {
		return err
	}
	var latest *migrate.Migration
	for i := range all {
		if !all[i].AppliedAt.IsZero() {
			latest = &all[i]
		}
	}
	if latest == nil {
		return s.show(newShownMigrations(nil), func(p *page.Page) { p.Printf("nothing to do: no migration is applied\n") })
	}
	if err := c.ask(s, fmt.Sprintf("undoes %s and deletes all data in its tables; a key without a record is new, and a retry executes again", latest.Name)); err != nil {
		return err
	}
	undone, err := migrate.Down(unbroken(s), db, migrations.FS)
	if err != nil {
		return err
	}
	var list []migrate.Migration
	if undone != nil {
		list = append(list, *undone)
	}
	return s.show(newShownMigrations(list), func(p *page.Page) { p.Printf("undid %s\n", names(list)) })
}

// Run lists the migrations. It returns errFound if one is pending.
func (c *migrateStatusCommand) Run(s *session) error {
	db, err := c.database(s)
	if err != nil {
		return err
	}
	defer db.Close()
	all, err := migrate.Status(s.ctx, db, migrations.FS)
	if err != nil {
		return err
	}
	pending := 0
	err = s.show(newShownMigrations(all), func(p *page.Page) {
		var rows [][]string
		for _, m := range all {
			applied := p.Red("missing")
			if !m.AppliedAt.IsZero() {
				applied = page.Time(m.AppliedAt)
			}
			rows = append(rows, []string{m.Name, applied})
		}
		p.Table(page.Columns("MIGRATION", "APPLIED"), rows)
	})
	for _, m := range all {
		if m.AppliedAt.IsZero() {
			pending++
		}
	}
	if err == nil && pending > 0 {
		return errFound
	}
	return err
}
