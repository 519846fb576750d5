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

// Message is the arguments of a job that carries a message of an outbox. The ID of the message
// makes the job unique.
type Message struct {
	ID      string            `json:"id" river:"unique"`
	Topic   string            `json:"topic"`
	Key     string            `json:"key,omitempty"`
	Type    string            `json:"type,omitempty"`
	Payload []byte            `json:"payload,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Kind returns the kind of all jobs that carry messages.
func (Message) Kind() string { return "idem_message" }

// PublisherConfig configures a Publisher. The zero value works.
type PublisherConfig struct {
	// InsertOpts returns the options of the job for a message: queue, priority, tags. The package
	// replaces UniqueOpts. It also replaces a MaxAttempts of 0 by 32,767, because the inbox limits
	// the attempts.
	InsertOpts func(m outbox.Message) river.InsertOpts
}

// Publisher publishes the messages of an outbox as River jobs.
type Publisher struct {
	client *river.Client[pgx.Tx]
	config PublisherConfig
}

var _ outbox.Publisher = (*Publisher)(nil)

// NewPublisher returns a Publisher that inserts jobs with client. The client need not be started.
// The database of the client and the database of the outbox may differ.
func NewPublisher(client *river.Client[pgx.Tx], config PublisherConfig) *Publisher {
	if config.InsertOpts == nil {
		config.InsertOpts = func(outbox.Message) river.InsertOpts { return river.InsertOpts{} }
	}
	return &Publisher{client, config}
}

// Publish inserts the jobs of all messages in one transaction. If that fails, Publish inserts the
// jobs one by one, and its error names the messages whose jobs River has refused. If the database
// is unavailable, the error names no message. See [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, messages []outbox.Message) error {
	err := outbox.Recover(func() error { return p.insert(ctx, messages) })
	if err == nil || len(messages) == 0 {
		return nil
	}
	failed, concernMessages := map[string]error{}, true
	for i, m := range messages {
		if failure := outbox.Recover(func() error { return p.insert(ctx, messages[i:i+1]) }); failure != nil {
			failed[m.ID], concernMessages = failure, concernMessages && mayConcernMessage(failure)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case len(failed) == len(messages) && !(concernMessages && p.isAvailable(ctx)):
		return err // no message is the cause: the database is unavailable, or has another defect
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

// isAvailable reports whether the database of River answers a query.
func (p *Publisher) isAvailable(ctx context.Context) bool {
	_, err := p.client.QueueList(ctx, river.NewQueueListParams().First(1))
	return err == nil
}

// mayConcernMessage reports whether the message itself may be the cause of its error. An error of
// Postgres may be caused by the message if its class is about data, constraints or limits. The end
// of a context has other causes.
func mayConcernMessage(err error) bool {
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
