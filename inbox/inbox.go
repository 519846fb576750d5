package inbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
)

// Handle gives a message its effect once: it commits the writes of fn together with the ID of the
// message. If an earlier call handled the message, the Outcome is Duplicate and fn is not called.
// Consumers with different names each handle the message.
//
// fn makes its writes in tx. It must not keep tx, commit it or roll it back. Handle may call fn
// several times, and rolls back each run but the last one. If fn returns an error, panics or ends
// its goroutine, Handle rolls back and counts an attempt, and the Outcome says when to deliver the
// message again. After as many attempts as WithMaxAttempts allows, the message becomes a dead
// letter.
//
// Handle counts no attempt if the context ended, the database is unavailable, the connection was
// lost, a row was locked, or a serialization failure or a deadlock occurred. While the consumer is
// paused (see WithCircuit), the Outcome is Retry with ErrPaused, and fn is not called.
//
// If an argument is invalid, Handle returns an error and no Outcome. Handle also returns an error
// if the context ended or the database is unavailable, and ErrMismatch if the ID belongs to another
// payload. In these cases the Outcome is valid too.
func Handle(ctx context.Context, pool *pgxpool.Pool, consumer string, m Message, fn func(tx pgx.Tx) error, opts ...Option) (Outcome, error) {
	var h handler
	if fn != nil {
		h.fn = func(tx pgx.Tx, _ []Message) error { return fn(tx) }
	}
	outcomes, err := run(ctx, pool, consumer, []Message{m}, h, opts)
	if len(outcomes) == 0 {
		return Outcome{}, err
	}
	if err == nil {
		err = mismatchOf(outcomes[0])
	}
	return outcomes[0], err
}

// Batch handles many messages as Handle does, in one transaction if none of them fails. It calls fn
// for each message that has to be handled, in the order of the slice. If fn fails for a message,
// only this message is rolled back, and the others are committed. WithLanes divides the messages
// among several transactions that run concurrently.
//
// Batch returns the Outcome of each message, in the order of the slice, unless an argument is
// invalid.
func Batch(ctx context.Context, pool *pgxpool.Pool, consumer string, messages []Message, fn func(tx pgx.Tx, m Message) error, opts ...Option) ([]Outcome, error) {
	return run(ctx, pool, consumer, messages, handlerOf(fn), opts)
}

// Bulk handles many messages as Batch does, but calls fn once for all messages that have to be
// handled, so that fn can write them with one statement. If fn fails, Bulk halves the messages
// until it has found the failing ones.
func Bulk(ctx context.Context, pool *pgxpool.Pool, consumer string, messages []Message, fn func(tx pgx.Tx, ms []Message) error, opts ...Option) ([]Outcome, error) {
	return run(ctx, pool, consumer, messages, handler{fn: fn, bulk: true}, opts)
}

func handlerOf(fn func(tx pgx.Tx, m Message) error) (h handler) {
	if fn != nil {
		h.fn = func(tx pgx.Tx, ms []Message) error { return fn(tx, ms[0]) }
	}
	return h
}

func run(ctx context.Context, pool *pgxpool.Pool, name string, messages []Message, h handler, opts []Option) (outcomes []Outcome, err error) {
	began := time.Now()
	c := newConsumer(pool, name, h, opts)
	var data TraceHandledData
	if err = c.check(messages); err == nil && len(messages) > 0 {
		outcomes, err = c.handle(ctx, messages, &data)
	}
	if c.observer != nil {
		data.Consumer, data.Messages, data.Duration = name, len(messages), time.Since(began)
		data.Err, data.Cause = err, idem.CauseOf(err)
		data.count(outcomes)
		c.observer.TraceHandled(ctx, data)
	}
	return outcomes, err
}

// handle divides the messages into lanes, handles the lanes concurrently, and adds their counters
// to data.
func (c *consumer) handle(ctx context.Context, messages []Message, data *TraceHandledData) ([]Outcome, error) {
	lanes := divide(messages, c.maxLanes())
	outcomes := make([]Outcome, len(messages))
	calls, panics := make([]*call, len(lanes)), make([]any, len(lanes))
	var running sync.WaitGroup
	for i, l := range lanes {
		calls[i] = newCall(c, len(l.messages))
		handleLane := func() {
			defer calls[i].pace.leave()
			for n, o := range calls[i].run(ctx, l.messages) {
				outcomes[l.positions[n]] = o
			}
		}
		if len(lanes) == 1 {
			handleLane()
			break
		}
		running.Go(func() {
			defer func() { panics[i] = recover() }()
			handleLane()
		})
	}
	running.Wait()
	var stopped error
	for i, lane := range calls {
		if panics[i] != nil { // raise a panic, of a Sealer for example, in the caller's goroutine
			panic(panics[i])
		}
		data.add(&lane.data)
		if stopped == nil {
			stopped = lane.stopped
		}
	}
	return outcomes, hint(stopped)
}

// mismatchOf returns the error of an outcome if it is ErrMismatch, or else nil.
func mismatchOf(o Outcome) error {
	if errors.Is(o.Err, ErrMismatch) {
		return o.Err
	}
	return nil
}
