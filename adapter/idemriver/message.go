package idemriver

import (
	"context"
	"errors"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"

	"github.com/idem-go/idem/outbox"
)

// Message is the job that is made of a message of the outbox. Its ID makes it unique.
type Message struct {
	ID      string            `json:"id" river:"unique"`
	Topic   string            `json:"topic"`
	Key     string            `json:"key,omitempty"`
	Type    string            `json:"type,omitempty"`
	Payload []byte            `json:"payload,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Kind is that of all jobs that are made of messages.
func (Message) Kind() string { return "idem_message" }

// PublisherConfig changes a Publisher. The zero value works.
type PublisherConfig struct {
	// InsertOpts are those of the job of a message: queue, priority, tags. UniqueOpts are set by this package, and so are
	// MaxAttempts if they are 0: the inbox counts attempts.
	InsertOpts func(m outbox.Message) river.InsertOpts
}

// Publisher is an outbox.Publisher that makes a River job of each message.
type Publisher struct {
	client *river.Client[pgx.Tx]
	config PublisherConfig
}

// NewPublisher returns a Publisher. The client need not be started, and its database may be another one than that of the outbox.
func NewPublisher(client *river.Client[pgx.Tx], config PublisherConfig) *Publisher {
	if config.InsertOpts == nil {
		config.InsertOpts = func(outbox.Message) river.InsertOpts { return river.InsertOpts{} }
	}
	return &Publisher{client, config}
}

// Publish inserts the jobs in one transaction. If River refuses it, it inserts them one by one, and names those that it has refused
// alone, although the database is there.
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	err := outbox.Recover(func() error { return p.insert(ctx, messages) })
	if err == nil || len(messages) == 0 {
		return nil
	}
	failed, own := map[string]error{}, true
	for i, m := range messages {
		if failure := outbox.Recover(func() error { return p.insert(ctx, messages[i:i+1]) }); failure != nil {
			failed[m.ID], own = failure, own && isOwn(failure)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == len(messages) && !(own && p.answers(ctx)): // then it is not because of them
		return err
	}
	return &outbox.PublishError{Failed: failed}
}

func (p *Publisher) insert(ctx context.Context, messages []outbox.Message) error {
	jobs := make([]river.InsertManyParams, len(messages))
	for i, m := range messages {
		jobs[i] = p.job(m)
	}
	_, err := p.client.InsertMany(ctx, jobs)
	return err
}

// answers reports whether River's database is there.
func (p *Publisher) answers(ctx context.Context) bool {
	_, err := p.client.QueueList(ctx, river.NewQueueListParams().First(1))
	return err == nil
}

// isOwn reports whether an error may be about a message. Of the database's errors those are that are about data.
func isOwn(err error) bool {
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
		class := refused.Code[:min(2, len(refused.Code))]
		return class == "22" || class == "23" || class == "54"
	}
	return !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

func (p *Publisher) job(m outbox.Message) river.InsertManyParams {
	opts := p.config.InsertOpts(m)
	opts.UniqueOpts = river.UniqueOpts{ByArgs: true}
	if opts.MaxAttempts == 0 {
		opts.MaxAttempts = math.MaxInt16
	}
	args := Message{ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
	return river.InsertManyParams{Args: args, InsertOpts: &opts}
}
