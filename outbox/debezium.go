package outbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// moveAtATime is how many delayed messages are moved together where no relay says otherwise.
const moveAtATime = 1000

// RunDelayed inserts messages that have a NotBefore in idem.outbox when they are due, until ctx ends. A Relay does so by itself: this is
// for who has none, because Debezium reads the table. Run it in every process; they do not get in each other's way. The logger is told
// of errors, after which it goes on; nil is slog.Default(). It returns an error only if pool is nil.
func RunDelayed(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) error {
	if pool == nil {
		return errors.New("outbox: pool is nil")
	}
	if logger == nil {
		logger = slog.Default()
	}
	engine := &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	trouble := txn.Pauses{Current: firstTrial, Limit: lastTrial}
	for d := (delayed{}); ctx.Err() == nil; {
		err := d.step(ctx, engine)
		pause := d.until(time.Now(), lookForPost)
		if err != nil && ctx.Err() == nil {
			pause = trouble.Next()
			logger.WarnContext(ctx, "outbox: delayed messages are looked for again after a pause", "error", err, "pause", pause)
		} else {
			trouble.Current = firstTrial
		}
		_ = txn.Sleep(ctx, pause)
	}
	return nil
}

// step moves what is due, and asks what is next.
func (d *delayed) step(ctx context.Context, engine asker) error {
	bounded, cancel := context.WithTimeoutCause(ctx, settleLimit, errSlow)
	defer cancel()
	if move := d.moves(time.Now(), moveAtATime); move != nil {
		began := time.Now()
		if err := engine.Query(bounded, begin, &db.LimitRelay{}, move, commit); err != nil {
			return err
		}
		d.moved(move, time.Since(began), time.Now())
	}
	next := d.asks(time.Now())
	if next == nil {
		return nil
	}
	if err := engine.Query(bounded, begin, &db.LimitRelay{}, next, commit); err != nil {
		return err
	}
	d.told(next, time.Now())
	return nil
}
