package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bridge"
	"github.com/idem-go/idem/internal/txn"
)

var idemCalls = bridge.Get[idem.Option, idem.Result]()

// Do is idem.Do for a fn that uses database/sql.
//
// fn makes its writes on tx and nowhere else, does not keep tx, does not commit it or roll it back, and may be called more than once.
// A statement that the program has prepared on db is used by tx.Stmt. The transaction's options are those of idem.WithTxOptions, and Tx
// returns it as a pgx.Tx.
//
// If ctx ends while fn runs, tx stays usable until fn returns, and then everything is rolled back. Statements of fn end with ctx if they
// are given it, as by ExecContext.
func Do(ctx context.Context, db *sql.DB, scope, key string, hash idem.Hash, fn func(tx *sql.Tx) (idem.Response, error), opts ...idem.Option) (idem.Result, error) {
	from := sourceOf(db)
	return idem.Do(ctx, from.pool, scope, key, hash, leased(fn), from.among(opts)...)
}

// DoJSON is idem.DoJSON for a fn that uses database/sql. See Do.
func DoJSON[T any](ctx context.Context, db *sql.DB, scope, key string, hash idem.Hash, fn func(tx *sql.Tx) (T, error), opts ...idem.Option) (T, idem.Result, error) {
	from := sourceOf(db)
	return idem.DoJSON(ctx, from.pool, scope, key, hash, leased(fn), from.among(opts)...)
}

// DoTx is idem.DoTx inside a transaction that the caller has begun by database/sql. It needs one whose connection is of pgx's stdlib, as that of Do.
//
// If the context with which tx was begun ends, database/sql rolls tx back, at any moment: DoTx then answers an error, and nothing is committed.
// The response counts for others once tx is committed.
func DoTx(ctx context.Context, tx *sql.Tx, scope, key string, hash idem.Hash, fn func(tx *sql.Tx) (idem.Response, error), opts ...idem.Option) (idem.Result, error) {
	if tx == nil {
		return idem.Result{}, errors.New("idemsql: tx is nil")
	}
	own, err := Tx(ctx, tx)
	if err != nil {
		return idem.Result{}, err
	}
	var joined func(pgx.Tx) (idem.Response, error)
	if fn != nil {
		share := shareOf(own)
		joined = func(part pgx.Tx) (idem.Response, error) {
			before := share.pass(part)
			defer share.pass(before)
			return fn(tx)
		}
	}
	result, err := idem.DoTx(ctx, own, scope, key, hash, joined, opts...)
	if errors.Is(err, idem.ErrTxEnded) && ctx.Err() != nil {
		return result, fmt.Errorf("idemsql: the context ended while fn ran, and database/sql rolled the transaction back: %w", context.Cause(ctx))
	}
	return result, err
}

// leased makes a fn of database/sql one of pgx.
func leased[T any](fn func(*sql.Tx) (T, error)) func(pgx.Tx) (T, error) {
	if fn == nil {
		return nil
	}
	return func(tx pgx.Tx) (T, error) { return fn(shareOf(tx).tx) }
}

// among returns opts together with the source. Without a *sql.DB there is none, which idem.Do refuses.
func (s source) among(opts []idem.Option) []idem.Option {
	if s.db == nil {
		return opts
	}
	var from txn.Source = s
	return slices.Concat([]idem.Option{idemCalls.WithSource(from)}, opts)
}
