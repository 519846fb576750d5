package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/panics"
	"github.com/idem-go/idem/internal/txn"
)

// Config configures a Consumer. ID, Key and Redriven are required.
type Config[D any] struct {
	// Ordered handles the messages of each key in the order of their delivery. It adds
	// inbox.WithOrder to Options.
	Ordered bool
	// Requeue says that the broker can deliver a message again at a given time. A failed message then
	// returns to the broker, with the outcome Retry. If Ordered is set, if the consumer is paused, or
	// if the database is unavailable, the Consumer keeps the message in memory instead.
	Requeue bool
	// Batch is the maximum number of messages in one transaction, 256 by default.
	Batch int
	// ID and Key return the ID and the key of a message. If one of them panics, the message has no
	// ID and is dead-lettered.
	ID, Key func(D) string
	// Redriven returns the raw argument of the handler for a redriven dead letter. Such a message
	// comes from the database, so there is no delivery of the broker for it.
	Redriven func(m inbox.Message) D
	// Position returns the position of a message in its source, such as an offset. It is logged if the
	// message becomes a dead letter. Position may be nil.
	Position func(D) string
	// Options are passed to inbox.Batch.
	Options []inbox.Option
	// Logger logs dead letters, and errors of the broker and of the database. The default is
	// slog.Default().
	Logger *slog.Logger
}

// Consumer handles the messages of Sessions. A Session may read the exported fields. They must not
// change after New.
type Consumer[D any] struct {
	Name      string
	Config[D] // New has set the defaults

	pool   *pgxpool.Pool
	handle func(tx pgx.Tx, m inbox.Message, raw D) error
}

// New returns a Consumer. name identifies the consumer in the inbox. New fails if an argument or an
// option is invalid.
func New[D any](
	pool *pgxpool.Pool, name string, handle func(tx pgx.Tx, m inbox.Message, raw D) error, config Config[D],
) (*Consumer[D], error) {
	config.Options = append([]inbox.Option(nil), config.Options...)
	if config.Ordered {
		config.Options = append(config.Options, inbox.WithOrder())
	}
	config.Batch = cmp.Or(config.Batch, 256)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	switch err := inbox.CheckOptions(config.Options...); {
	case err != nil:
		return nil, err
	case handle == nil || config.ID == nil || config.Key == nil || config.Redriven == nil:
		return nil, errors.New("pull: the handler, ID, Key or Redriven is nil; set all of them")
	case config.Batch < 1:
		return nil, fmt.Errorf("pull: Batch is %d; set it to 1 or more", config.Batch)
	}
	// A Batch without messages checks the pool and the name.
	_, err := inbox.Batch(context.Background(), pool, name, nil, func(pgx.Tx, inbox.Message) error { return nil })
	if err != nil {
		return nil, err
	}
	return &Consumer[D]{Config: config, Name: name, pool: pool, handle: handle}, nil
}

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 5 * time.Second

	maxWait = time.Second // the longest wait in one Receive, so that Settle runs at least once a second
)

// Run opens a Session, and handles its messages and redriven dead letters until ctx is done. Then
// Run closes the Session and returns nil. If open or the Session returns an error that wraps
// ErrPermanent, Run returns it. If the inbox refuses the Source of a message, Run also returns an
// error that wraps ErrPermanent. After any other error Run opens another Session, with a backoff.
func (c *Consumer[D]) Run(ctx context.Context, open func(ctx context.Context) (Session[D], error)) error {
	redriving, stop := context.WithCancel(ctx)
	var redrives sync.WaitGroup
	redrives.Go(func() { c.redrive(redriving) })
	defer redrives.Wait()
	defer stop()
	for backoff := (txn.Pauses{Current: minBackoff, Limit: maxBackoff}); ; {
		began := time.Now()
		err := c.consume(ctx, open)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrPermanent):
			return err
		case time.Since(began) > maxBackoff:
			backoff.Current = minBackoff
		}
		wait := backoff.Next()
		c.Logger.WarnContext(ctx, "inbox: cannot receive or acknowledge messages; connecting again",
			"consumer", c.Name, "backoff", wait, "error", err)
		_ = txn.Sleep(ctx, wait)
	}
}

// redrive handles redriven dead letters, which come from the database.
func (c *Consumer[D]) redrive(ctx context.Context) {
	err := inbox.RunRedrives(ctx, c.pool, c.Name, func(tx pgx.Tx, m inbox.Message) error {
		return c.handle(tx, m, c.Redriven(m))
	}, inbox.RedriveConfig{Options: c.Options, Logger: c.Logger})
	if err != nil {
		c.Logger.ErrorContext(ctx, "inbox: cannot handle redriven messages", "consumer", c.Name, "error", err)
	}
}

// consume opens one Session, and handles its messages until the Session fails or ctx is done.
func (c *Consumer[D]) consume(ctx context.Context, open func(ctx context.Context) (Session[D], error)) error {
	session, err := open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	l := &loop[D]{Consumer: c, session: session, queue: queue[D]{ordered: c.Ordered}, backoff: minBackoff}
	for ctx.Err() == nil {
		if err := l.runOnce(ctx); err != nil {
			return err
		}
	}
	return nil
}

// loop is the state of a Consumer during one Session.
type loop[D any] struct {
	*Consumer[D]
	session Session[D]
	queue   queue[D]
	retryAt time.Time     // when messages may be handled again after an error of the database
	backoff time.Duration // the backoff after the next error of the database
}

// runOnce receives deliveries, handles one batch of those that are due, and lets the Session
// acknowledge the deliveries that have an outcome.
func (l *loop[D]) runOnce(ctx context.Context) error {
	if err := l.receive(ctx); err != nil {
		return err
	}
	if now := time.Now(); ctx.Err() == nil && !now.Before(l.retryAt) {
		if ready, _ := l.queue.ready(now, l.Batch); len(ready) > 0 {
			if err := l.batch(ctx, ready); err != nil {
				return err
			}
		}
	}
	// Committed messages are acknowledged even after ctx is done.
	err := l.session.Settle(context.WithoutCancel(ctx), l.queue.held)
	l.queue.dropSettled()
	return err
}

// receive waits until a delivery arrives, the next attempt is due, or maxWait has passed.
func (l *loop[D]) receive(ctx context.Context) error {
	now := time.Now()
	ready, due := l.queue.ready(now, l.Batch)
	wait := maxWait
	if len(ready) > 0 || due.After(now) {
		next := due
		if len(ready) > 0 || next.Before(l.retryAt) {
			next = l.retryAt
		}
		wait = min(wait, max(next.Sub(now), 0))
	}
	received, err := l.session.Receive(ctx, l.Batch-len(ready), wait)
	for _, d := range received {
		l.identify(d)
	}
	l.queue.held = append(l.queue.held, received...)
	l.queue.dropRevoked()
	return err
}

func (l *loop[D]) identify(d *Delivery[D]) {
	err := panics.Try(func() error {
		d.Message.ID, d.Message.Key = l.ID(d.Raw), l.Key(d.Raw)
		return nil
	})
	if err != nil {
		panics.Log(l.Logger, "inbox: the function for the ID or the key of a message", err, "consumer", l.Name)
		d.Message.ID, d.Message.Key = "", ""
	}
}

// batch handles deliveries in one call of the inbox.
func (l *loop[D]) batch(ctx context.Context, ready []*Delivery[D]) error {
	type id struct{ source, id string }
	messages, raw := make([]inbox.Message, len(ready)), make(map[id]D, len(ready))
	for i, d := range ready {
		messages[i] = d.Message
		of := id{d.Message.Source, d.Message.ID}
		if _, seen := raw[of]; !seen { // if two deliveries have the same ID, the inbox handles the first
			raw[of] = d.Raw
		}
	}
	outcomes, err := inbox.Batch(ctx, l.pool, l.Name, messages, func(tx pgx.Tx, m inbox.Message) error {
		return l.handle(tx, m, raw[id{m.Source, m.ID}])
	}, l.Options...)
	if len(outcomes) != len(ready) {
		return fmt.Errorf("%w: %w", ErrPermanent, err)
	}
	for i, d := range ready {
		l.conclude(ctx, d, outcomes[i], err)
	}
	switch {
	case err == nil:
		l.backoff = minBackoff
	case ctx.Err() == nil:
		l.Logger.WarnContext(ctx, "inbox: cannot handle messages; trying again", "consumer", l.Name, "backoff", l.backoff, "error", err)
		l.retryAt = time.Now().Add(l.backoff)
		l.backoff = min(2*l.backoff, maxBackoff)
	}
	return nil
}

// conclude stores the outcome of a delivery, or schedules its next attempt. err is the error that
// inbox.Batch returned for the whole batch.
func (l *loop[D]) conclude(ctx context.Context, d *Delivery[D], outcome inbox.Outcome, err error) {
	paused := errors.Is(outcome.Err, inbox.ErrPaused)
	if outcome.State == inbox.Retry && (l.Ordered || !l.Requeue || paused || err != nil) {
		d.due = outcome.RetryAt
		if !paused { // a paused consumer has not tried the message
			d.failed = !errors.Is(outcome.Err, inbox.ErrBehind)
		}
		return
	}
	d.outcome = outcome
	if outcome.State == inbox.Dead && !errors.Is(outcome.Err, inbox.ErrDead) {
		attrs := []any{"consumer", l.Name, "source", d.Message.Source, "message", d.Message.ID, "error", outcome.Err}
		if l.Position != nil {
			_ = panics.Try(func() error {
				attrs = append(attrs, "position", l.Position(d.Raw))
				return nil
			})
		}
		l.Logger.ErrorContext(ctx, "inbox: a message is a dead letter", attrs...)
	}
}
