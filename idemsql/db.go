package idemsql

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// OpenDB returns a *sql.DB over pool. On this *sql.DB, a first run of [Do] takes as many round
// trips as a plain transaction around the statements of fn, and one more with WithReplayLikely. The
// *sql.DB can be used for everything else as well, like the *sql.DB of stdlib.OpenDBFromPool. It
// keeps no idle connections of its own. Its Close leaves pool open.
func OpenDB(pool *pgxpool.Pool) *sql.DB {
	db := sql.OpenDB(&connector{
		Connector: stdlib.GetPoolConnector(pool),
		driver:    &openedDriver{Driver: stdlib.GetDefaultDriver(), pool: pool},
	})
	db.SetMaxIdleConns(0) // pool keeps the idle connections
	return db
}

type connector struct {
	driver.Connector
	driver *openedDriver
}

// openedDriver is the driver of the *sql.DB that OpenDB returns. sourceOf recognizes such a *sql.DB
// by this type.
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

// openedConn is a connection of pgx's stdlib. A lease can hand it a transaction that has already
// begun.
type openedConn struct {
	*stdlib.Conn
	lent driver.Tx // the transaction that the next BeginTx returns; if nil, BeginTx begins a transaction
}

// BeginTx returns the lent transaction if there is one. Otherwise it begins a transaction.
func (c *openedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if tx := c.lent; tx != nil {
		c.lent = nil
		return tx, nil
	}
	tx, err := c.Conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return callerTx{tx, c.Conn.Conn()}, nil
}

// callerTx is a transaction that the caller has begun. Its Commit fails while the fn of a DoTx
// runs.
type callerTx struct {
	driver.Tx
	conn *pgx.Conn
}

func (t callerTx) Commit() error {
	p, ok := t.conn.PgConn().CustomData()[pairKey].(*txPair)
	if !ok || !p.inJoinedFn() {
		return t.Tx.Commit()
	}
	err := p.refuse(pgx.Tx.Commit)
	_ = t.Tx.Rollback()
	return err
}
