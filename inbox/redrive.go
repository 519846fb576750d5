package inbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// RedriveConfig configures RunRedrives. Its zero value works.
type RedriveConfig struct {
	// Every is how often RunRedrives looks for redriven messages, 5 seconds by default. After an
	// error it backs off, up to a minute.
	Every time.Duration
	// Options are the options of the consumer, as for Batch.
	Options []Option
	// Logger logs errors. The default is slog.Default().
	Logger *slog.Logger
}

const (
	redriveEvery      = 5 * time.Second
	maxRedriveBackoff = time.Minute
	redriveBatch      = 100
	redriveBytes      = 16 << 20 // maximum bytes of payloads in one batch
)

// RunRedrives handles the redriven messages of a consumer until ctx ends. The Run methods of the
// adapters' consumers call it. RunRedrives returns an error only if an argument is invalid.
func RunRedrives(ctx context.Context, pool *pgxpool.Pool, consumer string, fn func(tx pgx.Tx, m Message) error, config RedriveConfig) error {
	if err := newConsumer(pool, consumer, handlerOf(fn), config.Options).check(nil); err != nil {
		return err
	}
	every, logger := config.Every, cmp.Or(config.Logger, slog.Default())
	if every <= 0 {
		every = redriveEvery
	}
	for pause := every; ; {
		messages, outcomes, err := HandleRedrives(ctx, pool, consumer, redriveBatch, fn, config.Options...)
		for i, o := range outcomes {
			if o.State == Dead && !errors.Is(o.Err, ErrDead) {
				logger.ErrorContext(ctx, "inbox: a redriven message is a dead letter again",
					"consumer", consumer, "source", messages[i].Source, "message", messages[i].ID, "error", o.Err)
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			logger.WarnContext(ctx, "inbox: cannot handle redriven messages; trying again", "consumer", consumer, "error", err)
			pause = min(2*pause, max(every, maxRedriveBackoff))
		case slices.ContainsFunc(outcomes, Outcome.hasEffect):
			continue // more messages may be due
		default:
			pause = every
		}
		if txn.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

func (o Outcome) hasEffect() bool { return o.State == Done || o.State == Duplicate }

// HandleRedrives handles the redriven messages of a consumer that are due, as Batch does, and
// returns them with their outcomes. It handles at most limit messages, with up to 16 MiB of
// payloads in total. It costs one query if no message was redriven. RunRedrives calls it
// periodically.
func HandleRedrives(ctx context.Context, pool *pgxpool.Pool, consumer string, limit int, fn func(tx pgx.Tx, m Message) error, opts ...Option) ([]Message, []Outcome, error) {
	s := newSettings(opts)
	if s.err != nil {
		return nil, nil, s.err
	}
	redrives := db.MessageRedrives{Consumer: consumer, Room: limit, MaxBytes: redriveBytes}
	if err := query(ctx, pool, &redrives); err != nil || len(redrives.Rows) == 0 {
		return nil, nil, err
	}
	var messages []Message
	var unreadable []error
	for i := range redrives.Rows {
		r := &redrives.Rows[i]
		m := Message{Source: r.Source, ID: r.ID, Key: r.Key, Type: r.Type, Deliveries: 2} // it may have killed its process
		var err error
		if m.Payload, m.Headers, err = s.open(r.Contents, Ref{consumer, r.Source, r.ID}); err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		messages = append(messages, m)
	}
	outcomes, err := Batch(ctx, pool, consumer, messages, fn, opts...)
	var handled []db.MessageID
	for i, o := range outcomes {
		if o.hasEffect() {
			handled = append(handled, db.MessageID{Source: messages[i].Source, ID: messages[i].ID})
		}
	}
	if len(handled) > 0 { // the dead letter of a message remains if its row in idem.inbox was gone
		group := db.NewMessages(consumer, len(handled), func(i int) (db.MessageID, [32]byte) { return handled[i], [32]byte{} })
		err = errors.Join(err, query(ctx, pool, db.ForgetRedrives{Messages: group}))
	}
	return messages, outcomes, errors.Join(append(unreadable, err)...)
}
