package migrate

import (
	"database/sql"
	"errors"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Tables of our own, so that the application's goose and ours never meet. They name their schema: services that share a database and set
// different search paths have to find the same tables.
const (
	versionTable = "public.idem_goose_version"
	lockTable    = "public.idem_goose_lock"
)

// What the lock does: a holder that has died holds it for as long as the lease, and a process that waits asks often, because
// our migrations are short.
const (
	lease     = 15 * time.Second
	heartbeat = 3 * time.Second
	askEvery  = 100 * time.Millisecond
	askTimes  = 3000 // five minutes
	freeTimes = 300
)

func newProvider(db *sql.DB, files fs.FS, options ...goose.ProviderOption) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, files, append(options,
		goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true))...)
}

// locking is a provider that works alone. It needs a second connection for the lock.
func locking(db *sql.DB, files fs.FS) (*goose.Provider, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return nil, errors.New("migrate: two connections are needed, and the database may open only one")
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
