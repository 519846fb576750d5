package idemsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/txn"
)

// source is a *sql.DB as an engine sees it.
type source struct {
	db   *sql.DB
	pool *pgxpool.Pool // beneath that of OpenDB, nil beneath any other
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

// Idle returns how many connections are not in use.
func (s source) Idle() int { return s.db.Stats().Idle }

// Pool is that of OpenDB.
func (s source) Pool() *pgxpool.Pool { return s.pool }

// Acquire takes a connection from database/sql.
func (s source) Acquire(ctx context.Context) (txn.Sublease, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	l := &lease{sql: conn}
	if err := conn.Raw(l.look); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return l, nil
}

// look finds the connection of pgx beneath that of database/sql, and beneath those of drivers that wrap another one.
func (l *lease) look(driverConn any) error {
	for {
		switch c := driverConn.(type) {
		case *openedConn:
			l.opened, l.conn = c, c.Conn.Conn()
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
