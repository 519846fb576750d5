package idemhttp

import (
	"context"

	"github.com/jackc/pgx/v5"
)

type attemptKey struct{}

// Tx returns the transaction of the request that ctx belongs to. The rules of [idem.Do] apply: it is neither committed nor
// rolled back by the handler, and it is dead once the handler has returned. [idem.ExecutionID] knows it.
//
// Tx panics outside of a handler that runs under a Middleware, which a method that is not in Config.Methods does not.
func Tx(ctx context.Context) pgx.Tx {
	a := attemptOf(ctx)
	if a == nil {
		panic("idemhttp: Tx: this context is not that of a handler under Middleware.Wrap or Middleware.Handle; " +
			"is the route wrapped, and the method in Config.Methods?")
	}
	a.asked.Store(true)
	return a.tx
}

// attemptOf returns the attempt that ctx belongs to, or nil.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}
