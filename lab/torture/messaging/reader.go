package messaging

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
		deliveries, err := broker.Fetch.Send(context.Background(), r.broker, broker.Wish{Consumer: r.consumer.Name, Most: 1 + rand.IntN(100)})
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
		_, _ = broker.Settle.Send(context.Background(), r.broker, settlement)
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

func inboxBatch(ctx context.Context, r *reader, messages []inbox.Message) ([]inbox.Outcome, error) {
	options := r.options()
	if rand.IntN(3) == 0 {
		options = append(options, inbox.WithLanes(2+rand.IntN(4)))
	}
	return inbox.Batch(ctx, r.pool(), r.consumer.Name, messages, func(tx pgx.Tx, m inbox.Message) error {
		return r.hear(ctx, tx, m)
	}, options...)
}

func inboxBulk(ctx context.Context, r *reader, messages []inbox.Message) ([]inbox.Outcome, error) {
	return inbox.Bulk(ctx, r.pool(), r.consumer.Name, messages, func(tx pgx.Tx, ms []inbox.Message) error {
		for _, m := range ms {
			if err := r.hear(ctx, tx, m); err != nil {
				return err
			}
		}
		return nil
	}, r.options()...)
}

func (r *reader) pool() *pgxpool.Pool { return r.pools[rand.IntN(len(r.pools))] }

var errPlanned = errors.New("the handler fails, as planned")

// hear is the handler of a letter. It writes an effect, obeys the fate of the letter, and answers
// some letters by adding another letter to the outbox.
func (r *reader) hear(ctx context.Context, tx pgx.Tx, m inbox.Message) error {
	l, err := letter.Decode(m.Payload)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO torture.heard (consumer, id, at) VALUES ($1::text, $2::text, $3::int8)", r.consumer.Name, l.ID, int64(history.Now())); err != nil {
		return err
	}
	if l.Topic == letter.Slow && !r.calm {
		time.Sleep(slowness)
	} else if rand.IntN(100) == 0 {
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	if err := r.suffer(ctx, tx, l); err != nil {
		return err
	}
	if r.consumer.Answers && l.IsAnswered() {
		answer := letter.Letter{ID: letter.NewID(), Topic: letter.Bills, Key: l.Key, N: l.N, Fate: r.fate(), Cause: l.ID}
		return put(ctx, tx, answer)
	}
	return nil
}

// suffer causes the failure that is the fate of the letter.
func (r *reader) suffer(ctx context.Context, tx pgx.Tx, l letter.Letter) error {
	switch l.Fate {
	case letter.Poison:
		return fail()
	case letter.Flaky:
		if !r.calm && rand.IntN(2) == 0 {
			return fail()
		}
	case letter.Passing:
		if !r.calm && rand.IntN(2) == 0 {
			return pass(ctx, tx)
		}
	case letter.Severed:
		if !r.calm && rand.IntN(8) > 0 {
			return sever(ctx, tx)
		}
	case letter.BrokenSQL:
		_, err := tx.Exec(ctx, "SELECT 1 / 0")
		return err
	case letter.Swallows:
		_, _ = tx.Exec(ctx, "SELECT 1 / 0")
	case letter.BrokenCommit:
		// The value contains the name of the consumer. Otherwise two consumers would insert the
		// same values and could deadlock at COMMIT.
		_, err := tx.Exec(ctx, "INSERT INTO torture.once VALUES ($1::text), ($1::text)", r.consumer.Name+" "+l.ID)
		return err
	}
	return nil
}

// fail returns an error or panics.
func fail() error {
	if rand.IntN(3) == 0 {
		panic(errPlanned)
	}
	return errPlanned
}

// pass aborts the transaction of a handler with a transient error of the database, such as a lock
// timeout or a lack of memory.
func pass(ctx context.Context, tx pgx.Tx) error {
	codes := []string{"55P03", "53200", "53400", "08006", "57014", "40001", "40P01"}
	_, err := tx.Exec(ctx, "DO $$BEGIN RAISE EXCEPTION 'it passes' USING ERRCODE = '"+codes[rand.IntN(len(codes))]+"'; END$$")
	return err
}

// sever terminates the session of a handler. The handler reports the error or ignores it.
func sever(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
	if rand.IntN(4) == 0 {
		return nil
	}
	return err
}
