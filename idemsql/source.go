package idemsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/txn"
)

// idemCalls are functions of package idem that only packages of this module can call.
var idemCalls = bridge.Get[idem.Option, idem.Result]()

// source takes connections for an engine from a *sql.DB. It implements txn.Source.
type source struct {
	db   *sql.DB
	pool *pgxpool.Pool // the pool that was given to OpenDB; nil for any other *sql.DB
}

func sourceOf(db *sql.DB) source {
	if db == nil {
		return source{}
	}
	if own, ok := db.Driver().(*openedDriver); ok {
		return source{db: db, pool: own.pool}
	}
	return source{db: db}
}

// IsFull reports whether all connections are in use.
func (s source) IsFull() bool {
	stats := s.db.Stats()
	return stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections
}

// Idle returns the number of idle connections.
func (s source) Idle() int { return s.db.Stats().Idle }

// Pool returns the pool that was given to OpenDB, or nil.
func (s source) Pool() *pgxpool.Pool { return s.pool }

// Acquire takes a connection from the *sql.DB. It returns ErrDriver if the driver is not pgx's.
func (s source) Acquire(ctx context.Context) (txn.Sublease, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	l := &lease{sql: conn}
	if err := conn.Raw(l.findConn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return l, nil
}

// findConn finds the pgx connection under driverConn, also if another driver wraps the driver of
// pgx.
func (l *lease) findConn(driverConn any) error {
	for {
		switch c := driverConn.(type) {
		case *openedConn:
			l.dbKind, l.conn = c, c.Conn.Conn()
			return nil
		case interface{ Conn() *pgx.Conn }:
			l.conn = c.Conn()
			return nil
		case interface{ Raw() driver.Conn }:
			driverConn = c.Raw()
		default:
			return fmt.Errorf("%w; it is %T", ErrDriver, driverConn)
		}
	}
}

// Through returns an option for idem.Do, and for packages built on idem.Do, such as idemhttp. With
// this option the transaction that fn gets is also a transaction of db, and [SQLTx] returns it as a
// *sql.Tx. db must come from [OpenDB] over the pool of the call. DoTx and package operation refuse
// the option.
//
// The rules of [Do] apply to the *sql.Tx and to the pgx.Tx.
func Through(db *sql.DB) idem.Option {
	source := sourceOf(db)
	if source.pool == nil {
		return idemCalls.WithSource(nil)
	}
	return idemCalls.WithSource(source)
}

// SQLTx returns the *sql.Tx of a pgx.Tx that the fn of a call with [Through] got, or that
// idemhttp.Tx returned. It returns an error for any other transaction.
func SQLTx(tx pgx.Tx) (*sql.Tx, error) {
	own, ok := txn.LentOf(tx).(*sharedTx)
	if !ok {
		return nil, errors.New("idemsql: SQLTx: the transaction does not belong to database/sql; pass the option Through to the call that begins it")
	}
	return own.sqlTx, nil
}
