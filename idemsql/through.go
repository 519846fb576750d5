package idemsql

import (
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

// Through is an option of idem.Do, and of what is built on it, as idemhttp.Config: the transaction that fn gets is one of db as well, and SQLTx returns it.
// db is one of OpenDB, over the pool that the call has. It is for Do alone: DoTx and package operation refuse it.
//
// What fn does with the *sql.Tx, or with the pgx.Tx, obeys the rules of Do in this package.
func Through(db *sql.DB) idem.Option {
	from := sourceOf(db)
	if from.pool == nil {
		return idemCalls.WithSource(nil)
	}
	return idemCalls.WithSource(from)
}

// SQLTx returns the *sql.Tx of a tx that the fn of a call with Through was given, or that idemhttp.Tx has returned in its place.
func SQLTx(tx pgx.Tx) (*sql.Tx, error) {
	own, ok := txn.LentOf(tx).(*sharedTx)
	if !ok {
		return nil, errors.New("idemsql: the transaction is none of database/sql: give its call the option Through")
	}
	return own.tx, nil
}
