package direct

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/redelivery"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/outbox"
)

// ConsumerConfig configures a Consumer. The zero value is valid.
type ConsumerConfig struct {
	// Batch is the maximum number of messages in a transaction. The default is 256. While handlers
	// are slow, transactions have fewer messages.
	Batch int
	// Options are passed to inbox.Batch. inbox.WithLanes handles several keys concurrently.
	Options []inbox.Option
	// Logger logs dead letters. The default is slog.Default().
	Logger *slog.Logger
}

// Consumer is an outbox.Publisher that handles messages instead of publishing them. It is safe for
// concurrent use.
type Consumer struct {
	pool   *pgxpool.Pool
	name   string
	handle Handler
	config ConsumerConfig
	batch  batch
}

var _ outbox.OrderKeeper = (*Consumer)(nil)

// NewConsumer returns a Consumer that handles messages in the database of pool. name is the name of
// the consumer in the inbox: a message that was handled under this name is not handled again.
func NewConsumer(pool *pgxpool.Pool, name string, handle Handler, config ConsumerConfig) (*Consumer, error) {
	switch {
	case pool == nil:
		return nil, errors.New("direct: pool is nil")
	case handle == nil:
		return nil, errors.New("direct: the Handler is nil")
	case config.Batch < 0 || config.Batch > 10_000:
		return nil, errors.New("direct: ConsumerConfig: Batch must be between 1 and 10,000")
	}
	config.Options = append(config.Options[:len(config.Options):len(config.Options)], inbox.WithOrder())
	if err := inbox.CheckOptions(config.Options...); err != nil {
		return nil, err
	}
	if _, err := inbox.Batch(context.Background(), pool, name, nil, handle); err != nil { // a Batch without messages checks the name
		return nil, err
	}
	config.Batch = cmp.Or(config.Batch, 256)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return &Consumer{pool: pool, name: name, handle: handle, config: config}, nil
}

// KeepsOrder implements outbox.OrderKeeper.
func (c *Consumer) KeepsOrder() bool { return true }

// RunBeside handles dead letters that were redriven, until ctx is done. Relay.Run calls it.
func (c *Consumer) RunBeside(ctx context.Context) {
	config := inbox.RedriveConfig{Options: c.config.Options, Logger: c.config.Logger}
	if err := inbox.RunRedrives(ctx, c.pool, c.name, c.handle, config); err != nil {
		c.config.Logger.Error("direct: cannot handle redriven dead letters", "consumer", c.name, "error", err)
	}
}

// Publish handles as many messages as possible before its context ends. It leaves the other
// messages to a later call, and its error marks them with outbox.RetryLater.
func (c *Consumer) Publish(ctx context.Context, messages []outbox.Message) error {
	call := newCall(ctx, c, messages)
	for call.next(ctx) {
		call.handle(ctx)
	}
	return call.result(ctx)
}

// call is the state of one call of Publish.
type call struct {
	*Consumer
	began    time.Time
	length   time.Duration    // the time from began to the deadline of the call
	todo     []inbox.Message  // the messages that are not tried yet, in order
	failed   map[string]error // the errors that Publish returns, by message ID
	blocked  map[keyOf]error  // the keys whose later messages wait, because a message of the key is retried in a later call
	handled  int
	tried    bool      // the first transaction of the call has begun
	pausedAt time.Time // when the pause of the consumer ends (see inbox.WithCircuit); zero without a pause
	err      error     // the last error of inbox.Batch, about the whole batch
}

type keyOf struct{ topic, key string }

// defaultLength is how long a call of Publish may take if its context has no deadline.
const defaultLength = 30 * time.Second

func newCall(ctx context.Context, c *Consumer, messages []outbox.Message) *call {
	p := &call{
		Consumer: c, began: time.Now(), length: defaultLength, failed: map[string]error{}, blocked: map[keyOf]error{},
	}
	if deadline, ok := ctx.Deadline(); ok {
		p.length = deadline.Sub(p.began)
	}
	repeated := redelivery.IDs(ctx)
	for _, m := range messages {
		if strings.ContainsFunc(m.Topic, unicode.IsControl) {
			p.failed[m.ID] = errors.New("direct: the topic has a control character, which a Source of the inbox cannot have")
			continue
		}
		message := inbox.Message{
			Source: m.Topic, ID: m.ID, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload, Deliveries: 1,
		}
		if repeated[m.ID] {
			message.Deliveries = 2
		}
		p.todo = append(p.todo, message)
	}
	return p
}

// next reports whether the call has a message to handle and the time to handle it. While the inbox
// pauses the consumer, next waits.
func (p *call) next(ctx context.Context) bool {
	if p.err != nil || len(p.todo) == 0 {
		return false
	}
	if !p.pausedAt.IsZero() {
		_ = txn.Sleep(ctx, time.Until(p.pausedAt))
		p.pausedAt = time.Time{}
	}
	return ctx.Err() == nil && p.room() > 0
}

// room returns the number of messages for which the call has time. The number is 0 in the last
// eighth of the call. Before that, it is at least 1 for the first transaction.
func (p *call) room() int {
	left := p.length - time.Since(p.began)
	if left <= p.length/shareOfCall {
		return 0
	}
	room := p.batch.size(left, p.config.Batch)
	if !p.tried {
		room = max(room, 1)
	}
	return min(room, len(p.todo))
}

// handle handles the next messages in one transaction.
func (p *call) handle(ctx context.Context) {
	n := max(p.room(), 1)
	group := p.withoutBlocked(p.todo[:n])
	p.todo = p.todo[n:]
	if len(group) == 0 {
		return
	}
	p.tried = true
	began := time.Now()
	longer, cancel := withoutDeadline(ctx, p.length)
	defer cancel()
	outcomes, err := inbox.Batch(longer, p.pool, p.name, group, timed(p.Consumer.handle, p.began, p.length), p.config.Options...)
	p.batch.adjust(len(group), time.Since(began), p.length)
	if p.err = err; len(outcomes) < len(group) {
		p.todo = append(group, p.todo...)
		return
	}
	var left []inbox.Message
	for i, o := range outcomes {
		m := &group[i]
		switch {
		case o.State != inbox.Retry:
			p.settle(m, o)
		case err != nil:
			left = append(left, *m)
		case errors.Is(o.Err, inbox.ErrPaused):
			p.pausedAt = o.RetryAt
			left = append(left, *m)
		default:
			reason := o.Err
			if errors.Is(reason, context.DeadlineExceeded) {
				// The deadline of the handler has passed. The relay would take this error for the
				// end of the whole call, so only its text is returned.
				reason = errors.New(reason.Error())
			}
			p.later(m, outbox.RetryLater(reason, max(time.Until(o.RetryAt), 1)))
		}
	}
	p.todo = append(p.withoutBlocked(left), p.todo...)
}

// settle counts a message that is handled or dead-lettered, and logs a new dead letter.
func (p *call) settle(m *inbox.Message, o inbox.Outcome) {
	p.handled++
	if o.State == inbox.Dead && !errors.Is(o.Err, inbox.ErrDead) {
		p.config.Logger.Error("direct: a message was dead-lettered",
			"consumer", p.name, "topic", m.Source, "message", m.ID, "error", o.Err)
	}
}

// later leaves a message to a later call, and blocks the later messages of its key.
func (p *call) later(m *inbox.Message, err error) {
	p.failed[m.ID] = err
	if m.Key != "" {
		p.blocked[keyOf{m.Source, m.Key}] = err
	}
}

// withoutBlocked returns the messages whose keys are not blocked. For each other message it stores
// the error that blocks the key of the message in p.failed.
func (p *call) withoutBlocked(group []inbox.Message) []inbox.Message {
	var free []inbox.Message
	for i := range group {
		if err := p.blocked[keyOf{group[i].Source, group[i].Key}]; err != nil {
			p.failed[group[i].ID] = err
			continue
		}
		free = append(free, group[i])
	}
	return free
}

// result returns the error of Publish. Messages that were not tried are marked with RetryLater, so
// that the relay passes them to the next call. If an error of the inbox has left every message
// without an outcome, the error of Publish names no message, and the relay takes the consumer for
// unavailable.
func (p *call) result(ctx context.Context) error {
	if p.err != nil && ctx.Err() == nil && p.handled+len(p.failed) == 0 {
		return outbox.RetryLater(p.err, 0)
	}
	reason := p.err
	if reason == nil {
		reason = errNoTime
	}
	for i := range p.todo {
		p.failed[p.todo[i].ID] = outbox.RetryLater(reason, 0)
	}
	if len(p.failed) == 0 {
		return nil
	}
	return &outbox.PublishError{Failed: p.failed}
}
