package txn

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pauses are pauses that double up to Limit. Each pause is random, between half of Current and
// Current, so that callers that wait for the same thing do not retry at the same time.
type Pauses struct{ Current, Limit time.Duration }

// RetryPause is the pause before a transaction runs again.
var RetryPause = Pauses{Current: 2 * time.Millisecond, Limit: 100 * time.Millisecond}

// Next returns the next pause.
func (p *Pauses) Next() time.Duration {
	pause := p.Current/2 + rand.N(p.Current/2)
	p.Current = min(2*p.Current, p.Limit)
	return pause
}

// Sleep pauses for d. It returns early with the error of ctx if ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Do runs fn in a transaction and commits it, unless fn returns an error or undo=true. After a
// serialization failure or a deadlock it runs fn again, at most retries times. An error of Do means
// the same as an error of Commit.
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

// Requery is Query, but repeats the round trip after a serialization failure or a deadlock. Where
// transactions are serializable by default, processes that claim operations at the same time cause
// such failures.
func (e *Engine) Requery(ctx context.Context, requests ...Request) error {
	err := e.Query(ctx, requests...)
	for pause, left := RetryPause, 5; Rerunnable(err) && left > 0; left-- {
		if Sleep(ctx, pause.Next()) != nil {
			return err
		}
		err = e.Query(ctx, requests...)
	}
	return err
}
