package outbox

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// delayed decides when a worker queries idem.delayed, and when it moves due messages from there to
// idem.outbox. Every worker moves messages of all topics and streams. A transaction that moves
// messages takes an advisory lock, so only one process moves at a time.
//
// A query returns the time at which the first message is due, and no move begins before that time.
// While an old snapshot prevents vacuum, queries are slow because they read past all deleted rows.
// So are moves that begin at the beginning of the table. For this reason each of the two takes at
// most a tenth of the time.
type delayed struct {
	due       time.Time // when the next move is due; zero if this is not known
	nextQuery time.Time // when the next query may be made
	from      time.Time // the next move begins with messages due at this time; zero for the beginning of the table
	nextWhole time.Time // when moves begin at the beginning again, to find messages that were committed late
}

const (
	minQueryPause = 100 * time.Millisecond
	queryShare    = 10                    // queries, and moves from the beginning, each take at most a tenth of the time
	movePause     = 50 * time.Millisecond // the pause before a move, unless the move continues the one before
	delayedBatch  = 1000                  // the maximum number of messages that RunDelayed moves in a transaction
	delayedPoll   = time.Second           // the maximum pause of RunDelayed
)

// query returns the query for the next due time, or nil if it is too early for a query.
func (d *delayed) query(now time.Time) *db.NextDelayed {
	if now.Before(d.nextQuery) {
		return nil
	}
	return &db.NextDelayed{}
}

// queried stores the result of a query. If the last move has not moved all due messages, the next
// move remains due at once.
func (d *delayed) queried(next *db.NextDelayed, now time.Time) {
	d.nextQuery = now.Add(max(minQueryPause, queryShare*next.Took))
	if d.from.IsZero() {
		d.due = now.Add(max(next.Due, movePause))
	}
}

// move returns a move of at most room messages, or nil if no message is due.
func (d *delayed) move(now time.Time, room int) *db.MoveDelayed {
	if d.due.IsZero() || now.Before(d.due) {
		return nil
	}
	return &db.MoveDelayed{FromMoment: d.from, Room: room, Octets: maxReadBytes}
}

// moved stores the result of a move. The next move begins where this one has ended, or at the
// beginning of the table if nextWhole has passed.
func (d *delayed) moved(m *db.MoveDelayed, took time.Duration, now time.Time) {
	if d.from.IsZero() {
		d.nextWhole = now.Add(max(minQueryPause, queryShare*took))
	}
	d.due, d.nextQuery, d.from = time.Time{}, time.Time{}, time.Time{}
	switch {
	case !m.Mine: // another process is moving messages
		d.due = now.Add(movePause)
	case m.Moved > 0:
		if d.due = now; now.Before(d.nextWhole) {
			d.from = m.Until
		}
	}
}

// RunDelayed moves messages with a NotBefore to idem.outbox when they are due, until ctx is done. A
// Relay does the same. RunDelayed is for programs in which Debezium reads idem.outbox instead of a
// Relay. Run it in every process. It logs errors and continues; a nil logger is slog.Default(). It
// returns an error only if pool is nil.
func RunDelayed(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) error {
	if pool == nil {
		return errNoPool
	}
	logger = cmp.Or(logger, slog.Default())
	engine := &txn.Engine{Pool: pool, Limits: txn.DefaultLimits}
	backoff := txn.Pauses{Current: minRetryPause, Limit: maxRetryPause}
	for d := (delayed{}); ctx.Err() == nil; {
		err := d.run(ctx, engine)
		pause := delayedPoll
		switch {
		case err != nil && ctx.Err() == nil:
			pause = backoff.Next()
			logger.WarnContext(ctx, "outbox: cannot move delayed messages; retrying", "error", err, "pause", pause)
		default:
			backoff.Current = minRetryPause
			if !d.due.IsZero() {
				pause = min(max(time.Until(d.due), 0), pause)
			}
		}
		_ = txn.Sleep(ctx, pause)
	}
	return nil
}

// run moves messages that are due, and queries when the next one is due.
func (d *delayed) run(ctx context.Context, engine querier) error {
	bounded, cancel := context.WithTimeoutCause(ctx, writeTimeout, errSlow)
	defer cancel()
	if move := d.move(time.Now(), delayedBatch); move != nil {
		began := time.Now()
		if err := engine.Query(bounded, inTransaction(move)...); err != nil {
			return err
		}
		d.moved(move, time.Since(began), time.Now())
	}
	next := d.query(time.Now())
	if next == nil {
		return nil
	}
	if err := engine.Query(bounded, inTransaction(next)...); err != nil {
		return err
	}
	d.queried(next, time.Now())
	return nil
}
