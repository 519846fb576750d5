package idemnats

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/inbox"
)

// round handles what is ready, or waits until something is.
func (r *run) round(ctx context.Context) {
	ready, next := r.hand.Ready(r.inOrder(ctx), time.Now(), r.config.Batch)
	if len(ready) == 0 {
		r.idle(ctx, next)
		return
	}
	err := r.hand.Round(ctx, ready, r.batch, r.settle)
	r.acknowledge(ctx)
	if err == nil {
		r.trouble = minRest
		return
	}
	if ctx.Err() == nil {
		r.config.Logger.Warn("idemnats: cannot handle messages", "consumer", r.name, "error", err)
		sleep(ctx, r.trouble)
		r.trouble = min(2*r.trouble, maxRest)
	}
}

func (r *run) batch(ctx context.Context, messages []inbox.Message) ([]inbox.Outcome, error) {
	type name struct{ source, id string }
	delivered := make(map[name]jetstream.Msg, len(messages))
	for _, h := range r.hand.All() {
		key := name{h.Message.Source, h.Message.ID}
		if delivered[key] == nil { // the first one is handled
			delivered[key] = h.Delivery.msg
		}
	}
	return inbox.Batch(ctx, r.pool, r.name, messages, func(tx pgx.Tx, m inbox.Message) error {
		return r.handle(tx, m, delivered[name{m.Source, m.ID}])
	}, r.config.Options...)
}

// settle tells the broker the outcome of a message. The effect, or the dead letter, is committed. What the broker does not
// hear it delivers again, as a duplicate.
func (r *run) settle(h *held, outcome inbox.Outcome) {
	msg := h.Delivery.msg
	switch outcome.State {
	case inbox.Retry:
		_ = msg.NakWithDelay(time.Until(outcome.RetryAt))
	case inbox.Dead:
		if !errors.Is(outcome.Err, inbox.ErrDead) {
			r.config.Logger.Error("idemnats: a message is a dead letter", "consumer", r.name, "stream", h.Message.Source,
				"sequence", h.Seq, "error", outcome.Err)
		}
		_ = msg.Term()
	default:
		r.handled = append(r.handled, msg)
	}
}

// acknowledge tells the broker of what was handled. In order, it waits until the broker knows, because what it counts as
// pending decides how it goes on.
func (r *run) acknowledge(ctx context.Context) {
	for i, msg := range r.handled {
		if r.config.Ordered && i == len(r.handled)-1 {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			_ = msg.DoubleAck(ctx)
			cancel()
			continue
		}
		_ = msg.Ack()
	}
	r.handled = nil
}

// idle waits until something arrives, a pause is over, or it is time to look again.
func (r *run) idle(ctx context.Context, next time.Time) {
	wait := fetchWait
	if !next.IsZero() {
		wait = min(wait, time.Until(next))
	}
	if r.predecessors.lost() {
		wait = min(wait, r.predecessors.pause())
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-r.changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}
