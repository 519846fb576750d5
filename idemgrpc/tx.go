package idemgrpc

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Tx returns the transaction of the handler whose context is ctx. The rules of [idem.Do] apply: the
// handler must not commit the transaction or roll it back, and must not use it after returning.
// [idem.ExecutionID] accepts the transaction.
//
// Tx panics if ctx is not the context of a handler under [Interceptor.Unary]. A method that
// Config.Methods excludes has no such context.
func Tx(ctx context.Context) pgx.Tx {
	tx, ok := unary.Tx(ctx)
	if !ok {
		panic("idemgrpc: Tx: this context is not that of a handler under Interceptor.Unary; is the method one of Config.Methods?")
	}
	return tx
}
