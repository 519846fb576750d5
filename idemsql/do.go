package idemsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// Do is idem.Do for an fn that uses database/sql.
//
// fn must make its writes on tx only. It must not keep tx, and must not commit it or roll it back.
// fn may be called more than once. To use a statement that was prepared on db, call tx.Stmt. To set
// the options of the transaction, use idem.WithTxOptions. [Tx] returns the transaction as a pgx.Tx.
//
// If ctx ends while fn runs, tx stays usable until fn returns. Then everything is rolled back. A
// statement ends with ctx only if fn passes ctx to it, as in ExecContext.
func Do(ctx context.Context, db *sql.DB, scope, key string, hash idem.Hash, fn func(tx *sql.Tx) (idem.Response, error), opts ...idem.Option) (idem.Result, error) {
	source := sourceOf(db)
	return idem.Do(ctx, source.pool, scope, key, hash, adapt(fn), source.withOption(opts)...)
}

// DoJSON is idem.DoJSON for an fn that uses database/sql. The rules of [Do] apply.
func DoJSON[T any](ctx context.Context, db *sql.DB, scope, key string, hash idem.Hash, fn func(tx *sql.Tx) (T, error), opts ...idem.Option) (T, idem.Result, error) {
	source := sourceOf(db)
	return idem.DoJSON(ctx, source.pool, scope, key, hash, adapt(fn), source.withOption(opts)...)
}

// DoTx is idem.DoTx inside a transaction that the caller has begun with database/sql. The driver of
// the transaction must be pgx's stdlib. Other calls with the key replay the response once tx is
// committed.
//
// If the context that tx was begun with ends, database/sql rolls tx back at once. DoTx then returns
// an error, and nothing is committed.
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
		pair := pairOf(own)
		joined = func(part pgx.Tx) (idem.Response, error) {
			outer := pair.setFnTx(part)
			defer pair.setFnTx(outer)
			return fn(tx)
		}
	}
	result, err := idem.DoTx(ctx, own, scope, key, hash, joined, opts...)
	if errors.Is(err, idem.ErrTxEnded) && ctx.Err() != nil {
		return result, fmt.Errorf("idemsql: DoTx: database/sql rolled the transaction back, because its context ended while fn ran: %w", context.Cause(ctx))
	}
	return result, err
}

// adapt returns a function that gets a pgx.Tx and calls fn with the *sql.Tx of the same
// transaction.
func adapt[T any](fn func(*sql.Tx) (T, error)) func(pgx.Tx) (T, error) {
	if fn == nil {
		return nil
	}
	return func(tx pgx.Tx) (T, error) { return fn(pairOf(tx).sqlTx) }
}

// withOption returns opts with the option that makes idem.Do use s. If the *sql.DB is nil, it
// returns opts unchanged, and idem.Do returns an error for the nil pool.
func (s source) withOption(opts []idem.Option) []idem.Option {
	if s.db == nil {
		return opts
	}
	return slices.Concat([]idem.Option{idemCalls.WithSource(s)}, opts)
}
