package txn

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Do runs fn in a transaction that records nothing, and commits unless fn wants its writes undone. After a serialization
// failure or a deadlock it runs fn again, as often as retries says. What it returns is as true as what Commit returns.
func (e *Engine) Do(ctx context.Context, retries int, fn func(pgx.Tx) (undo bool, err error)) error {
	for pause := RetryPause; ; retries-- {
		err := e.once(ctx, fn)
		if err == nil || retries <= 0 || !Rerunnable(err) {
			return err
		}
		if Sleep(ctx, pause.Next()) != nil {
			return err
		}
	}
}

func (e *Engine) once(ctx context.Context, fn func(pgx.Tx) (bool, error)) error {
	tx, err := e.Open(ctx)
	if err != nil {
		return err
	}
	defer tx.Close() // also if fn panics
	undo, err := tx.Run("", fn)
	if err != nil || undo {
		return err
	}
	return tx.Commit(ctx)
}
