// Package migrate applies the migrations of package migrations to a database, and undoes them.
//
// Any number of processes may migrate at the same time: one process migrates and the others wait.
// This also works through a pooler in transaction mode. Such a pooler gives no process a session
// that could have an advisory lock, so the lock is a table row with a lease. If the process with
// the lock dies, another process continues when the lease has expired.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Up applies the migrations that are missing, and returns them. If none is missing it writes
// nothing, so a role without rights to change the schema may call it.
func Up(ctx context.Context, db *sql.DB, files fs.FS) ([]Migration, error) {
	all, err := Status(ctx, db, files)
	if err != nil {
		return nil, explained(err)
	}
	if !slices.ContainsFunc(all, func(m Migration) bool { return m.AppliedAt.IsZero() }) {
		return nil, nil
	}
	provider, err := locking(db, files)
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	return applied(results), explained(err)
}

const insufficientPrivilege = "42501"

// explained returns err. If a privilege is missing, it adds which privileges a role needs to
// migrate.
func explained(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == insufficientPrivilege {
		return fmt.Errorf("%w: to migrate, a role needs CREATE on the database and on schema public; to find out that nothing is missing, "+
			"SELECT on %s", err, versionTable)
	}
	return err
}

// Down undoes the latest migration and returns it. If there is none, it returns nil.
func Down(ctx context.Context, db *sql.DB, files fs.FS) (*Migration, error) {
	provider, err := locking(db, files)
	if err != nil {
		return nil, err
	}
	undone, err := provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := migrationOf(undone.Source)
	return &m, nil
}

// UpAt calls Up for the database at dsn.
func UpAt(ctx context.Context, dsn string, files fs.FS) error {
	db, err := Open(dsn)
	if err != nil {
		return err
	}
	_, err = Up(ctx, db, files)
	return errors.Join(err, db.Close())
}

// Migration is one change of the schema.
type Migration struct {
	Version   int64
	Name      string    // the name of its file
	AppliedAt time.Time // set by Status; zero if not applied
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

// Status lists all migrations in order. It writes nothing, even if no migration was ever applied,
// and waits for no lock.
func Status(ctx context.Context, db *sql.DB, files fs.FS) ([]Migration, error) {
	provider, err := newProvider(db, files)
	if err != nil {
		return nil, err
	}
	var begun bool // whether the version table exists: goose would create it, and Status must not write
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

// Open returns a database handle that prepares no statements, because a pooler in transaction mode
// loses them.
func Open(dsn string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return stdlib.OpenDB(*config), nil
}

// The tables in which goose stores versions and the lock. An application may use goose for its own
// migrations, with other tables. The names have a schema, so that services with different search
// paths use the same tables.
const (
	versionTable = "public.idem_goose_version"
	lockTable    = "public.idem_goose_lock"
)

// The times of the lock. If the process with the lock dies, the lock is free when the lease has
// expired. A waiting process asks for the lock often, because the migrations are short.
const (
	lease     = 15 * time.Second
	heartbeat = 3 * time.Second
	askEvery  = 100 * time.Millisecond
	askTimes  = 3000 // with askEvery: five minutes
	freeTimes = 300
)

func newProvider(db *sql.DB, files fs.FS, options ...goose.ProviderOption) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, files, append(options,
		goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true))...)
}

// locking returns a provider that takes a lock while it migrates, so that one process migrates at a
// time. The provider needs a second connection for the lock.
func locking(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return nil, errors.New("migrate: the lock needs a second connection, and the *sql.DB may open only one; raise SetMaxOpenConns")
	}
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName(lockTable),
		lock.WithTableLeaseDuration(lease),
		lock.WithTableHeartbeatInterval(heartbeat),
		lock.WithTableLockTimeout(askEvery, askTimes),
		lock.WithTableUnlockTimeout(askEvery, freeTimes))
	if err != nil {
		return nil, err
	}
	return newProvider(db, files, goose.WithLocker(locker))
}
