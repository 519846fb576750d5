package txn

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

// rehearsalVariable is the environment variable that makes a test binary rehearse every fn. In a
// rehearsal fn runs, its writes are rolled back, and fn runs again.
const rehearsalVariable = "IDEM_REHEARSE"

// CanRehearse reports whether a program may ask for rehearsals: a test binary, or a process with
// IDEM_REHEARSE=1.
func CanRehearse() bool { return isTest() || os.Getenv(rehearsalVariable) == "1" }

// rehearsesAll reports whether every fn is rehearsed. Outside of a test binary the variable alone
// changes nothing.
func rehearsesAll() bool { return os.Getenv(rehearsalVariable) == "1" && isTest() }

// isTest reports whether the program is a test binary. testing.Testing also reports this, but every
// program that uses idem would then contain package testing.
func isTest() bool { return flag.Lookup("test.v") != nil }

const (
	setRehearsal     = "savepoint idem_rehearsal"
	undoRehearsal    = "rollback to savepoint idem_rehearsal"
	releaseRehearsal = "release savepoint idem_rehearsal"
)

// rehearsed returns a function that runs fn, rolls back its writes and runs fn again, as after a
// serialization failure at COMMIT. It rolls back to a savepoint, so that the transaction stays open
// and the caller needs no retry. If the first run cannot be committed, there is no second run.
func rehearsed(limit time.Duration, fn func(pgx.Tx) (undo bool, err error)) func(pgx.Tx) (undo bool, err error) {
	return func(tx pgx.Tx) (undo bool, err error) {
		if err := execOn(tx, limit, setRehearsal); err != nil {
			return false, err
		}
		if undo, err = fn(tx); undo || err != nil || !canGoOn(tx) {
			return undo, err
		}
		switch err := execOn(tx, limit, undoRehearsal, releaseRehearsal); {
		case lostSavepoint(err):
			return false, Ended("its savepoint is gone", nil)
		case err != nil:
			return false, err
		}
		if undo, err = fn(tx); err != nil {
			return undo, fmt.Errorf("idem: fn is not fit to be run again: the first run of a rehearsal succeeded, the second failed: %w", err)
		}
		return undo, nil
	}
}

// canGoOn reports whether fn has left the transaction open and able to continue. If not, checkState
// later returns the reason.
func canGoOn(tx pgx.Tx) bool {
	if g, ok := tx.(*guard); ok && g.access.ended() {
		return false
	}
	conn := tx.Conn()
	return conn != nil && !conn.IsClosed() && !conn.PgConn().IsBusy() && conn.PgConn().TxStatus() == 'T'
}

func execOn(tx pgx.Tx, limit time.Duration, commands ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for _, command := range commands {
		if _, err := tx.Exec(ctx, command); err != nil {
			return err
		}
	}
	return nil
}
