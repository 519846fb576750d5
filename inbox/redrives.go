package inbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/txn"
)

// RedriveConfig says how dead letters are handled that are to be tried again. Its zero value works.
type RedriveConfig struct {
	// Every is how often it is looked for some, 5 seconds by default. After an error the pause grows up to a minute.
	Every time.Duration
	// Options are those of the consumer.
	Options []Option
	// Logger is told of errors. The default is slog.Default().
	Logger *slog.Logger
}

const (
	redriveEvery = 5 * time.Second
	redrivePause = time.Minute // at most
	redriveBatch = 100
)

// RunRedrives handles the dead letters of a consumer that Redrive lets be tried again, until ctx ends. The consumers of the adapters that
// have a Run call it. It returns an error only if the arguments make no sense.
func RunRedrives(ctx context.Context, pool *pgxpool.Pool, consumer string, fn func(tx pgx.Tx, m Message) error, config RedriveConfig) error {
	c := &call{course: course{settings: newSettings(config.Options)}, consumer: consumer, handler: handler{each: fn}}
	if err := c.check(pool, nil); err != nil {
		return err
	}
	every, logger := config.Every, config.Logger
	if every <= 0 {
		every = redriveEvery
	}
	if logger == nil {
		logger = slog.Default()
	}
	for pause := every; ; {
		messages, _, err := HandleRedrives(ctx, pool, consumer, redriveBatch, fn, config.Options...)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			logger.WarnContext(ctx, "inbox: cannot handle dead letters again", "consumer", consumer, "error", err)
			pause = min(2*pause, max(every, redrivePause))
		default:
			pause = every
		}
		if len(messages) > 0 {
			logger.DebugContext(ctx, "inbox: dead letters are tried again", "consumer", consumer, "messages", len(messages))
		}
		if txn.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}
