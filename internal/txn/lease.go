package txn

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Lease is a connection that an engine has until it releases it. A *pgxpool.Conn is one.
type Lease interface {
	Conn() *pgx.Conn
	Release()
}

// Source is where an engine has its connections from, if they are not those of a pool of pgx alone. Sources are compared.
type Source interface {
	Acquire(ctx context.Context) (Sublease, error)

	// IsFull reports whether all connections are in use.
	IsFull() bool

	// Idle returns how many connections are not in use.
	Idle() int

	// Pool is what the connections are of, nil if it is no pool of pgx.
	Pool() *pgxpool.Pool
}

// Sublease is a Lease of a connection that has another owner than pgx's pool, such as database/sql. fn uses the transaction
// through that owner.
type Sublease interface {
	Lease

	// Begin makes the owner begin a transaction, if it cannot be told of one that has begun. Open begins another one behind it.
	Begin(ctx context.Context) error

	// Chained reports whether it did: whenever a transaction ends, the next has to begin with it, for the owner to roll back.
	Chained() bool

	// Lend makes tx, which is not guarded, fit for a fn that uses the owner as well.
	Lend(tx pgx.Tx) (pgx.Tx, error)

	// Around returns fn such that the owner has no use of the connection before fn begins, and none after it has returned.
	Around(fn func(pgx.Tx) (undo bool, err error)) func(pgx.Tx) (undo bool, err error)

	// IsLost reports whether fn has left something behind that may be using the connection. It is not to be touched then.
	IsLost() bool

	// End takes leave of the owner's transaction. The transaction of the engine has ended.
	End()
}

// Lent is a transaction whose connection has another owner, who may use it at any time. Between Borrow and Return it does not.
type Lent interface {
	pgx.Tx
	Borrow() error
	Return()
}
