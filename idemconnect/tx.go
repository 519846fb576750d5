package idemconnect

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Tx returns the transaction of the call that ctx belongs to. The rules of [idem.Do] apply: the
// handler must not commit it or roll it back, and must not use it after returning.
// [idem.ExecutionID] accepts it.
//
// Tx panics if ctx is not the context of a handler under the interceptor of [New]. Methods that
// Config.Methods excludes do not run under it.
func Tx(ctx context.Context) pgx.Tx {
	tx, ok := unary.Tx(ctx)
	if !ok {
		panic("idemconnect: Tx: this context is not that of a handler under the interceptor of New; is the method one of Config.Methods?")
	}
	return tx
}
