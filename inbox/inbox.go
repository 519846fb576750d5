package inbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/txn"
)

// Handle gives a message its effect once: fn's writes and the memory of the message are committed together. A message that was
// handled before is a Duplicate, and fn is not called. The consumer is whose effect it is: another one handles the same message
// on its own account.
//
// fn makes its writes on tx and nowhere else, does not keep tx, does not commit it or roll it back, and may be called more than
// once: whatever it did was rolled back then. If it returns an error, panics or ends its goroutine, nothing of it is committed,
// that is counted, and the message is to be delivered again when the time of its Outcome has come. After as many attempts as
// WithMaxAttempts says it is a dead letter. Nothing is counted if no message is to blame: the context has ended, the database is away
// or has lost the connection, a row is locked, or the transaction has lost against another one. A consumer that has failed with
// many messages in a row pauses, see WithCircuit: then the Outcome is Retry with ErrPaused, and fn was not called.
//
// The Outcome is always right. The error is not nil if the arguments make no sense, and there is no Outcome then; if the context
// has ended or the database cannot be reached; and for a message whose id belongs to another payload, which is ErrMismatch.
func Handle(ctx context.Context, pool *pgxpool.Pool, consumer string, m Message, fn func(tx pgx.Tx) error, opts ...Option) (Outcome, error) {
	var h handler
	if fn != nil {
		h.each = func(tx pgx.Tx, _ Message) error { return fn(tx) }
	}
	outcomes, err := run(ctx, pool, consumer, []Message{m}, h, opts)
	if len(outcomes) == 0 {
		return Outcome{}, err
	}
	if err == nil && errors.Is(outcomes[0].Err, ErrMismatch) {
		err = outcomes[0].Err
	}
	return outcomes[0], err
}

// Batch is Handle for many messages, in one transaction if none of them fails. fn is called for each that is to be handled, in
// their order. One that fails does not keep the others back: those before it are committed without it, and so are those behind it.
//
// With WithLanes there are several transactions side by side, each with keys of its own.
//
// There is an Outcome for each message, in their order, unless the arguments make no sense.
func Batch(ctx context.Context, pool *pgxpool.Pool, consumer string, messages []Message, fn func(tx pgx.Tx, m Message) error, opts ...Option) ([]Outcome, error) {
	return run(ctx, pool, consumer, messages, handler{each: fn}, opts)
}

// Bulk is Batch for a fn that handles many messages together, which is what makes the most of a transaction: it is given those
// that are to be handled, in their order. If it fails, the messages are halved until it is known whose fault that is.
func Bulk(ctx context.Context, pool *pgxpool.Pool, consumer string, messages []Message, fn func(tx pgx.Tx, ms []Message) error, opts ...Option) ([]Outcome, error) {
	return run(ctx, pool, consumer, messages, handler{all: fn}, opts)
}

func run(ctx context.Context, pool *pgxpool.Pool, consumer string, messages []Message, h handler, opts []Option) ([]Outcome, error) {
	c := &call{settings: newSettings(opts), consumer: consumer, handler: h}
	began := time.Now()
	err := c.check(pool, messages)
	var outcomes []Outcome
	if err == nil && len(messages) > 0 {
		c.engine = txn.Engine{Pool: pool, Options: c.txOptions, Limits: c.limits.txn, Prepared: prepared}
		registering := c.engine
		registering.Options = pgx.TxOptions{IsoLevel: pgx.ReadCommitted} // a failure is counted, whatever others do
		c.registry = registry{settings: &c.settings, engine: &registering, consumer: consumer}
		c.pace = pace{settings: &c.settings, circuit: circuitOf(pool, consumer), room: len(messages)}
		defer c.pace.leave()
		outcomes = c.handle(ctx, messages)
		err = hint(c.stopped)
	}
	if c.observer != nil {
		c.data.Consumer, c.data.Messages, c.data.Duration = consumer, len(messages), time.Since(began)
		c.data.Err, c.data.Cause = err, idem.CauseOf(err)
		c.data.count(outcomes)
		c.observer.TraceHandled(ctx, c.data)
	}
	return outcomes, err
}

func (c *call) check(pool *pgxpool.Pool, messages []Message) error {
	switch {
	case c.err != nil:
		return c.err
	case pool == nil:
		return errors.New("inbox: pool is nil")
	case c.handler.each == nil && c.handler.all == nil:
		return errors.New("inbox: fn is nil")
	}
	if err := checkName(c.consumer); err != nil {
		return errors.Join(errors.New("inbox: the consumer"), err)
	}
	for i := range messages {
		if err := checkName(messages[i].Source); err != nil {
			return errors.Join(errors.New("inbox: the source of a message"), err)
		}
	}
	return nil
}

// handle handles the messages of a call: in one lane, or in several side by side.
func (c *call) handle(ctx context.Context, messages []Message) []Outcome {
	lanes := lanesOf(messages, c.room())
	if len(lanes) < 2 {
		return c.run(ctx, messages)
	}
	outcomes := make([]Outcome, len(messages))
	calls, panics := make([]*call, len(lanes)), make([]any, len(lanes))
	var side sync.WaitGroup
	for i, l := range lanes {
		calls[i] = c.beside(len(l.messages))
		side.Go(func() {
			defer func() { panics[i] = recover() }()
			defer calls[i].pace.leave()
			for n, o := range calls[i].run(ctx, l.messages) {
				outcomes[l.places[n]] = o
			}
		})
	}
	side.Wait()
	for i, other := range calls {
		if panics[i] != nil { // of a Sealer for example: it is the caller's
			panic(panics[i])
		}
		c.data.add(&other.data)
		if c.stopped == nil {
			c.stopped = other.stopped
		}
	}
	return outcomes
}

// beside returns a call for some of the messages.
func (c *call) beside(messages int) *call {
	other := &call{settings: c.settings, consumer: c.consumer, handler: c.handler, engine: c.engine}
	other.registry = registry{settings: &other.settings, engine: c.registry.engine, consumer: c.consumer}
	other.pace = pace{settings: &other.settings, circuit: c.pace.circuit, room: messages}
	return other
}

// room returns how many lanes there may be. A connection of the pool is left for what handlers and others ask beside them.
func (c *call) room() int {
	if c.lanes < 2 {
		return 1
	}
	return min(c.lanes, int(c.engine.Pool.Stat().MaxConns())-1)
}

func (c *call) run(ctx context.Context, messages []Message) []Outcome {
	outcomes := make([]Outcome, len(messages))
	all := rounds(messages, c.ordered)
	for _, round := range all {
		c.order.all = append(c.order.all, round...)
	}
	c.admit(c.order.all) // a consumer that pauses asks the database nothing
	if c.ordered && len(unsettled(c.order.all)) > 0 {
		slices.SortFunc(c.order.all, func(a, b *delivery) int { return cmp.Compare(a.twins[0], b.twins[0]) })
		if err := c.order.wait(ctx, &c.registry); err != nil {
			c.stopped = err
		}
	}
	for _, round := range all {
		for _, d := range unsettled(round) {
			if err := checkName(d.ID); err != nil {
				c.refuse(ctx, []refusal{{d, err}})
			}
		}
		c.settle(ctx, round)
		for _, d := range round {
			d.tell(outcomes)
		}
	}
	return outcomes
}

func (t *TraceHandledData) count(outcomes []Outcome) {
	for _, o := range outcomes {
		switch o.State {
		case Done:
			t.Done++
		case Duplicate:
			t.Duplicates++
		case Retry:
			t.Retried++
		case Dead:
			t.Died++
			if errors.Is(o.Err, ErrMismatch) {
				t.Mismatches++
			}
		}
	}
}

// add adds what another lane has done.
func (t *TraceHandledData) add(other *TraceHandledData) {
	t.Failures += other.Failures
	t.Hindered += other.Hindered
	t.Paused += other.Paused
	t.Runs += other.Runs
	t.Transactions += other.Transactions
}
