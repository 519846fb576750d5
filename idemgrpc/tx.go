package idemgrpc

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/idemgrpc/unary"
)

// Tx returns the transaction of the call that ctx belongs to. The rules of [idem.Do] apply: it is neither committed nor rolled back by the
// handler, and it is dead once the handler has returned. [idem.ExecutionID] knows it.
//
// Tx panics outside of a handler that runs under an Interceptor, which a method that Config.Methods leaves out does not.
func Tx(ctx context.Context) pgx.Tx {
	tx, ok := unary.Tx(ctx)
	if !ok {
		panic("idemgrpc: Tx: this context is not that of a handler under Interceptor.Unary; is the method one of Config.Methods?")
	}
	return tx
}
