package messaging

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/adapter/direct"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/lab/torture/broker"
	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/inquiry"
	"github.com/idem-go/idem/lab/torture/letter"
	"github.com/idem-go/idem/outbox"
)

// reader is one consumer in a worker process.
type reader struct {
	*office
	consumer letter.Consumer
}

// read fetches and handles deliveries until ctx ends.
func (r *reader) read(ctx context.Context) {
	for ctx.Err() == nil {
		deliveries, err := r.broker.Fetch(context.Background(), broker.Wish{Consumer: r.consumer.Name, Most: 1 + rand.IntN(100)})
		if err != nil || len(deliveries) == 0 {
			time.Sleep(time.Duration(5+rand.IntN(20)) * time.Millisecond)
			continue
		}
		r.handle(deliveries)
	}
}

// handle handles deliveries in one batch, logs the outcomes, and settles them with the broker.
func (r *reader) handle(deliveries []broker.Delivery) {
	call := inboxBatch
	if !r.consumer.Answers && rand.IntN(2) == 0 {
		call = inboxBulk
	}
	limit := 4 * time.Second
	if !r.calm && rand.IntN(20) == 0 {
		limit = time.Duration(rand.IntN(100)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var messages []inbox.Message
	for _, d := range deliveries {
		messages = append(messages, inbox.Message{Source: d.Letter.Topic, ID: d.Letter.ID, Key: d.Letter.Key, Payload: d.Letter.Encode(), Deliveries: d.Count})
	}
	outcomes, err := call(ctx, r, messages)
	e := letter.Event{Kind: letter.KindTold, Op: r.next(), Consumer: r.consumer.Name}
	settlement := broker.Settlement{Consumer: r.consumer.Name, Again: map[int]time.Duration{}}
	if err != nil {
		time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
	}
	for i, outcome := range outcomes {
		d := deliveries[i]
		a := answerOf(outcome)
		a.ID, a.Forged = d.Letter.ID, d.Forged
		e.Answers = append(e.Answers, a)
		switch {
		case d.Place < 0:
		case outcome.State == inbox.Retry:
			settlement.Again[d.Place] = max(time.Until(outcome.RetryAt), 0)
		default:
			settlement.Acked = append(settlement.Acked, d.Place)
		}
	}
	r.note(e)
	// If this request is lost, the broker redelivers the letters.
	if len(outcomes) > 0 {
		_ = r.broker.Settle(context.Background(), settlement)
	}
}

func (r *reader) options() []inbox.Option {
	options := []inbox.Option{inbox.WithMaxAttempts(inquiry.MaxAttempts), inbox.WithBackoff(shortestPause, longestPause)}
	if r.consumer.Ordered {
		options = append(options, inbox.WithOrder())
	}
	return options
}

// answerOf converts an outcome of the inbox into its logged form.
func answerOf(o inbox.Outcome) letter.Answer {
	a := letter.Answer{}
	if o.Err != nil {
		a.Err = o.Err.Error()
	}
	switch {
	case errors.Is(o.Err, inbox.ErrMismatch):
		a.Outcome = history.Mismatch
	case o.State == inbox.Done:
		a.Outcome = history.Executed
	case o.State == inbox.Duplicate:
		a.Outcome = history.Replayed
	case o.State == inbox.Dead:
		a.Outcome = history.Died
	case errors.Is(o.Err, errPlanned):
		a.Outcome = history.FnFailed
	default:
		a.Outcome = history.InProgress
	}
	return a
}

// consumers returns a Publisher that handles the letters of each topic by a direct consumer.
func (o *office) consumers() (outbox.Publisher, error) {
	routes := map[string]outbox.Publisher{}
	for _, consumer := range letter.Direct() {
		r := &reader{o, consumer}
		r.consumer.Ordered = false // direct consumers are always ordered
		config := direct.ConsumerConfig{Options: r.options()}
		if o.Slot%2 == 1 {
			config.Options = append(config.Options, inbox.WithLanes(2+rand.IntN(4)))
		}
		handle := func(tx pgx.Tx, m inbox.Message) error { return r.hear(inbox.Context(tx), tx, m) }
		c, err := direct.NewConsumer(r.pool(), consumer.Name, handle, config)
		if err != nil {
			return nil, err
		}
		routes[consumer.Topic] = c
	}
	return outbox.Route(routes), nil
}
