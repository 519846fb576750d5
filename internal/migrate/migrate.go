// Package migrate brings a database to the schema of idem, and back. The files are those of package
// migrations.
//
// Any number of processes may do it at the same time, also through a pooler in transaction mode: one works and the others
// wait. The lock is a row of a table with a lease, because a pooler gives no session that could hold an advisory lock. If
// its holder dies, the next one goes on when the lease is over.
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
)

// Up applies what is missing, and returns what it applied. Where nothing is missing it writes nothing, so that a role may call it that
// may not change the schema.
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

// explained says what a role lacks that may not migrate.
func explained(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == insufficientPrivilege {
		return fmt.Errorf("%w: to migrate, a role needs CREATE on the database and on schema public; to find out that nothing is missing, "+
			"SELECT on %s", err, versionTable)
	}
	return err
}

// Down takes the latest migration back, and returns it. Where there is none, it does nothing and returns nil.
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

// UpAt is Up at the address of a database.
func UpAt(ctx context.Context, dsn string, files fs.FS) error {
	db, err := Open(dsn)
	if err != nil {
		return err
	}
	_, err = Up(ctx, db, files)
	return errors.Join(err, db.Close())
}
