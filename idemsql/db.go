package idemsql

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// OpenDB returns a *sql.DB over pool, on which a call of Do takes no round trip more than the plain transaction of its fn. It may be used for
// everything, as that of stdlib.OpenDBFromPool. It keeps no connection itself, and its Close leaves pool open.
func OpenDB(pool *pgxpool.Pool) *sql.DB {
	db := sql.OpenDB(&connector{
		Connector: stdlib.GetPoolConnector(pool),
		driver:    &openedDriver{Driver: stdlib.GetDefaultDriver(), pool: pool},
	})
	db.SetMaxIdleConns(0) // pool has those
	return db
}

type connector struct {
	driver.Connector
	driver *openedDriver
}

// openedDriver is the driver of a *sql.DB of OpenDB, which is known by it.
type openedDriver struct {
	driver.Driver
	pool *pgxpool.Pool
}

func (c *connector) Driver() driver.Driver { return c.driver }

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &openedConn{Conn: conn.(*stdlib.Conn)}, nil
}

// openedConn is a connection of pgx's stdlib that can be told of a transaction that has begun.
type openedConn struct {
	*stdlib.Conn
	lent driver.Tx // for the next BeginTx
}

// BeginTx begins a transaction, or makes a driver.Tx of the one that was lent.
func (c *openedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if tx := c.lent; tx != nil {
		c.lent = nil
		return tx, nil
	}
	tx, err := c.Conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return ownTx{tx, c.Conn.Conn()}, nil
}

// ownTx is a transaction of the caller's. It is not for the fn of a DoTx to commit.
type ownTx struct {
	driver.Tx
	conn *pgx.Conn
}

func (t ownTx) Commit() error {
	s, ok := t.conn.PgConn().CustomData()[shareOnConn].(*share)
	if !ok || !s.isGiven() {
		return t.Tx.Commit()
	}
	err := s.refuse(pgx.Tx.Commit)
	_ = t.Tx.Rollback()
	return err
}
