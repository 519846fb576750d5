package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/internal/txn"
)

// Config configures a Consumer. ID, Key and Redriven are required.
type Config[D any] struct {
	// Ordered keeps the order of each key: see inbox.WithOrder, which it adds to Options.
	Ordered bool
	// Requeue says that the broker can deliver a message again at a given time. Then a message that
	// is to be tried again is settled with the outcome Retry, unless Ordered is set, the consumer
	// pauses, or the database is unavailable: then it is held.
	Requeue bool
	// Batch is how many messages share a transaction at most, 256 by default.
	Batch int
	// ID and Key return those of a message. If they panic, the message is one without an ID, which
	// is a dead letter.
	ID, Key func(D) string
	// Redriven returns what the handler is given with a redriven dead letter, which no broker has
	// delivered.
	Redriven func(m inbox.Message) D
	// Position returns where a message was in its source, for the log. It may be nil.
	Position func(D) string
	// Options are given to inbox.Batch.
	Options []inbox.Option
	// Logger is where dead letters, and errors of the broker and the database, are logged. The
	// default is slog.Default().
	Logger *slog.Logger
}

// Consumer handles the messages of Sessions. Its fields are for Sessions to read.
type Consumer[D any] struct {
	Name      string
	Config[D] // with its defaults

	pool   *pgxpool.Pool
	handle func(tx pgx.Tx, m inbox.Message, raw D) error
}

// New returns a Consumer. name is the consumer's in the inbox. It fails if an argument or an option
// is invalid.
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
	case handle == nil:
		return nil, errors.New("pull: the handler is nil")
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
	minPause = 20 * time.Millisecond // after an error
	maxPause = 5 * time.Second
	maxWait  = time.Second // for a delivery; then Settle is called again
)

// Run handles the messages of a Session that open returns until ctx ends, and closes the Session.
// It handles redriven dead letters meanwhile. After an error it opens another Session. It returns
// an error only if that wraps ErrPermanent: a Session or open has returned the error, or the inbox
// refuses the name of a source.
func (c *Consumer[D]) Run(ctx context.Context, open func(ctx context.Context) (Session[D], error)) error {
	redriving, stop := context.WithCancel(ctx)
	var redrives sync.WaitGroup
	redrives.Go(func() { c.redrive(redriving) })
	defer redrives.Wait()
	defer stop()
	for pause := minPause; ; {
		began := time.Now()
		err := c.consume(ctx, open)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrPermanent):
			return err
		case time.Since(began) > maxPause:
			pause = minPause
		}
		c.Logger.WarnContext(ctx, "inbox: cannot receive or acknowledge messages", "consumer", c.Name, "error", err)
		_ = txn.Sleep(ctx, pause/2+rand.N(pause/2))
		pause = min(2*pause, maxPause)
	}
}

// redrive handles redriven dead letters, which no broker delivers any more.
func (c *Consumer[D]) redrive(ctx context.Context) {
	err := inbox.RunRedrives(ctx, c.pool, c.Name, func(tx pgx.Tx, m inbox.Message) error {
		return c.handle(tx, m, c.Redriven(m))
	}, inbox.RedriveConfig{Options: c.Options, Logger: c.Logger})
	if err != nil {
		c.Logger.ErrorContext(ctx, "inbox: cannot handle redriven messages", "consumer", c.Name, "error", err)
	}
}

// consume handles the messages of one Session until it breaks or ctx ends.
func (c *Consumer[D]) consume(ctx context.Context, open func(ctx context.Context) (Session[D], error)) error {
	session, err := open(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	l := &loop[D]{Consumer: c, session: session, queue: queue[D]{ordered: c.Ordered}, pause: minPause}
	for ctx.Err() == nil {
		if err := l.turn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// loop is what a Consumer does with one Session.
type loop[D any] struct {
	*Consumer[D]
	session Session[D]
	queue   queue[D]
	resume  time.Time     // no message is handled before: the database was unavailable
	pause   time.Duration // before messages are handled again after the next such error
}

// turn receives deliveries, handles a batch of what is due, and has it acknowledged.
func (l *loop[D]) turn(ctx context.Context) error {
	if err := l.receive(ctx); err != nil {
		return err
	}
	if now := time.Now(); ctx.Err() == nil && !now.Before(l.resume) {
		if ready, _ := l.queue.ready(now, l.Batch); len(ready) > 0 {
			if err := l.batch(ctx, ready); err != nil {
				return err
			}
		}
	}
	// What is committed is acknowledged also if the consumer was stopped meanwhile.
	err := l.session.Settle(context.WithoutCancel(ctx), l.queue.held)
	l.queue.dropSettled()
	return err
}

// receive waits for deliveries, unless a message can be handled now.
func (l *loop[D]) receive(ctx context.Context) error {
	now := time.Now()
	ready, due := l.queue.ready(now, l.Batch)
	wait := maxWait
	if len(ready) > 0 || due.After(now) {
		if due.Before(l.resume) || len(ready) > 0 {
			due = l.resume
		}
		wait = min(wait, max(due.Sub(now), 0))
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
	err := guard.Call(func() error {
		d.Message.ID, d.Message.Key = l.ID(d.Raw), l.Key(d.Raw)
		return nil
	})
	if err != nil {
		guard.Log(l.Logger, "inbox: the function for the ID or the key of a message", err, "consumer", l.Name)
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
		if _, twice := raw[of]; !twice { // the inbox handles the first of two deliveries
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
		l.decide(ctx, d, outcomes[i], err)
	}
	switch {
	case err == nil:
		l.pause = minPause
	case ctx.Err() == nil:
		l.Logger.WarnContext(ctx, "inbox: cannot handle messages", "consumer", l.Name, "error", err)
		l.resume = time.Now().Add(l.pause)
		l.pause = min(2*l.pause, maxPause)
	}
	return nil
}

// decide settles a delivery, or keeps it for another attempt. err is that of its batch.
func (l *loop[D]) decide(ctx context.Context, d *Delivery[D], outcome inbox.Outcome, err error) {
	paused := errors.Is(outcome.Err, inbox.ErrPaused)
	if outcome.State == inbox.Retry && (l.Ordered || !l.Requeue || paused || err != nil) {
		d.due = outcome.RetryAt
		if !paused { // otherwise the message was not tried
			d.failed = !errors.Is(outcome.Err, inbox.ErrBehind)
		}
		return
	}
	d.outcome = outcome
	if outcome.State == inbox.Dead && !errors.Is(outcome.Err, inbox.ErrDead) {
		where := []any{"consumer", l.Name, "source", d.Message.Source, "message", d.Message.ID}
		if l.Position != nil {
			where = append(where, "position", l.Position(d.Raw))
		}
		l.Logger.ErrorContext(ctx, "inbox: a message is a dead letter", append(where, "error", outcome.Err)...)
	}
}
