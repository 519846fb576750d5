package idemhttp

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/txn"
)

// errUnknownWithoutKey says that a COMMIT was not acknowledged. There is no record to ask.
var errUnknownWithoutKey = errors.New("idemhttp: COMMIT was not acknowledged, and the request had no key to ask by")

// runKeyless runs the handler in a transaction that records nothing, again after a serialization failure or a deadlock.
func (x *exchange) runKeyless(ctx context.Context) error {
	engine := txn.Engine{Pool: x.pool, Options: x.config.TxOptions, Limits: txn.DefaultLimits}
	err := engine.Do(ctx, x.config.Retries, func(tx pgx.Tx) (undo bool, err error) {
		decision, err := x.run(tx)
		return decision != Commit, err
	})
	var unknown *txn.UnknownError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%w: %w", errUnknownWithoutKey, unknown.Err)
	}
	return err
}
