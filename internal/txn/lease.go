package txn

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Lease is a connection that an engine uses until it calls Release. A *pgxpool.Conn is a Lease.
type Lease interface {
	Conn() *pgx.Conn
	Release()
}

// Source gives connections to an engine in place of a pool. Sources are compared with ==, so their
// type must be comparable.
type Source interface {
	Acquire(ctx context.Context) (Sublease, error)

	// IsFull reports whether all connections are in use.
	IsFull() bool

	// Idle returns the number of connections that are not in use.
	Idle() int

	// Pool returns the pool that the connections belong to, or nil if that is no pgx pool.
	Pool() *pgxpool.Pool
}

// Sublease is a Lease of a connection that belongs to another owner than a pgx pool, such as
// database/sql. fn uses the transaction through this owner.
type Sublease interface {
	Lease

	// Begin makes the owner begin a transaction, if Chained is true. Open then replaces this
	// transaction by its own.
	Begin(ctx context.Context) error

	// Chained reports whether the owner itself sends BEGIN, and later ROLLBACK. The engine must
	// leave an open transaction for this ROLLBACK. So each statement that ends a transaction of the
	// engine must begin another transaction (AND CHAIN).
	Chained() bool

	// Lend returns a pgx.Tx that wraps tx and from which fn can get the transaction of the owner. The
	// engine wraps the result in the guard of fn.
	Lend(tx pgx.Tx) (pgx.Tx, error)

	// Around returns fn wrapped so that the owner can use the connection only while fn runs.
	Around(fn func(pgx.Tx) (undo bool, err error)) func(pgx.Tx) (undo bool, err error)

	// IsLost reports whether fn left something behind that may still use the connection. If so, the
	// connection must not be used again.
	IsLost() bool

	// End rolls back the transaction that the owner has begun, such as a *sql.Tx. The engine has
	// already committed or rolled back its own transaction, which End does not affect.
	End()
}

// Lent is a transaction whose connection has another owner. The owner may use the connection at any
// time, except between Borrow and Return.
type Lent interface {
	pgx.Tx
	Borrow() error
	Return()
}
