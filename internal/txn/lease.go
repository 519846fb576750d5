package txn

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Lease is a connection that an engine holds until Release. A *pgxpool.Conn is one.
type Lease interface {
	Conn() *pgx.Conn
	Release()
}

// Source gives connections to an engine in place of a pool. Sources are compared with ==.
type Source interface {
	Acquire(ctx context.Context) (Sublease, error)

	// IsFull reports whether all connections are in use.
	IsFull() bool

	// Idle returns the number of connections that are not in use.
	Idle() int

	// Pool returns the pool that the connections belong to, or nil if that is no pgx pool.
	Pool() *pgxpool.Pool
}

// Sublease is a Lease of a connection with another owner than a pgx pool, such as database/sql. fn
// uses the transaction through that owner.
type Sublease interface {
	Lease

	// Begin makes the owner begin a transaction if the owner must begin it itself. Open then
	// replaces that transaction by its own.
	Begin(ctx context.Context) error

	// Chained reports whether Begin has begun a transaction. The owner will roll that transaction
	// back, so whenever a transaction of the engine ends, another one has to begin with the same
	// statement.
	Chained() bool

	// Lend returns a transaction for a fn that uses the owner as well. tx has no guard.
	Lend(tx pgx.Tx) (pgx.Tx, error)

	// Around returns fn wrapped so that the owner can use the connection only while fn runs.
	Around(fn func(pgx.Tx) (undo bool, err error)) func(pgx.Tx) (undo bool, err error)

	// IsLost reports whether fn left something behind that may still use the connection. The
	// connection must not be used then.
	IsLost() bool

	// End ends the owner's transaction after that of the engine has ended.
	End()
}

// Lent is a transaction whose connection has another owner. The owner may use the connection at any
// time, except between Borrow and Return.
type Lent interface {
	pgx.Tx
	Borrow() error
	Return()
}
