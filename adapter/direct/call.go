package direct

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/internal/redelivery"
	"github.com/idem-go/idem/outbox"
)

// call is one Publish, from its messages to the outcome of them.
type call struct {
	*target
	began    time.Time
	length   time.Duration    // that it may take
	todo     []inbox.Message  // in their order
	failed   map[string]error // by the ID of the message
	behind   map[keyOf]error  // keys of which a message is to come later: what is behind it waits as well
	handled  int
	tried    bool      // one transaction was begun
	pausedAt time.Time // until then the consumer pauses; zero if it does not
	err      error     // of the inbox
}

type keyOf struct{ topic, key string }

// withoutDeadline is how long a call may take whose context says nothing about it.
const withoutDeadline = 30 * time.Second

func newCall(ctx context.Context, to *target, messages []outbox.Message) *call {
	p := &call{target: to, began: time.Now(), length: withoutDeadline, failed: map[string]error{}, behind: map[keyOf]error{}}
	if deadline, ok := ctx.Deadline(); ok {
		p.length = deadline.Sub(p.began)
	}
	again := redelivery.IDs(ctx)
	for _, m := range messages {
		if strings.ContainsFunc(m.Topic, unicode.IsControl) {
			p.failed[m.ID] = errors.New("direct: the topic has a control character, which the name of a source in an inbox cannot have")
			continue
		}
		message := inbox.Message{Source: m.Topic, ID: m.ID, Key: m.Key, Type: m.Type, Headers: m.Headers, Payload: m.Payload, Deliveries: 1}
		if again[m.ID] {
			message.Deliveries = 2
		}
		p.todo = append(p.todo, message)
	}
	return p
}

// next reports whether there is something to handle, and time for it. While the consumer pauses it waits.
func (p *call) next(ctx context.Context) bool {
	if p.err != nil || len(p.todo) == 0 {
		return false
	}
	if !p.pausedAt.IsZero() {
		pause := time.NewTimer(time.Until(p.pausedAt))
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		p.pausedAt = time.Time{}
	}
	return ctx.Err() == nil && p.room() > 0
}

// room is for how many messages there is time. The first one has the whole call, however long others took.
func (p *call) room() int {
	left := p.length - time.Since(p.began)
	if left <= p.length/shareOfCall {
		return 0
	}
	room := p.size.of(left, p.config.Batch)
	if !p.tried {
		room = max(room, 1)
	}
	return min(room, len(p.todo))
}

// handle handles the next messages in one transaction.
func (p *call) handle(ctx context.Context) {
	n := max(p.room(), 1)
	group := p.withoutBehind(p.todo[:n])
	p.todo = p.todo[n:]
	if len(group) == 0 {
		return
	}
	p.tried = true
	began := time.Now()
	longer, over := beyond(ctx, p.length)
	defer over()
	outcomes, err := inbox.Batch(longer, p.pool, p.name, group, timed(p.target.handle, p.began, p.length), p.config.Options...)
	p.size.took(len(group), time.Since(began), p.length)
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
			if errors.Is(reason, context.DeadlineExceeded) { // the handler's own: for a relay it would be that of the call
				reason = errors.New(reason.Error())
			}
			p.later(m, outbox.RetryLater(reason, max(time.Until(o.RetryAt), 1)))
		}
	}
	p.todo = append(p.withoutBehind(left), p.todo...)
}

// settle notes that a message is handled, or dead.
func (p *call) settle(m *inbox.Message, o inbox.Outcome) {
	p.handled++
	if o.State == inbox.Dead && !errors.Is(o.Err, inbox.ErrDead) {
		p.config.Logger.Error("direct: a message is a dead letter", "consumer", p.name, "topic", m.Source, "message", m.ID, "error", o.Err)
	}
}

// later notes that a message is to come again, and what is behind it of its key.
func (p *call) later(m *inbox.Message, err error) {
	p.failed[m.ID] = err
	if m.Key != "" {
		p.behind[keyOf{m.Source, m.Key}] = err
	}
}

// withoutBehind returns the messages that need not wait for an earlier one of their key.
func (p *call) withoutBehind(group []inbox.Message) []inbox.Message {
	var free []inbox.Message
	for i := range group {
		if err := p.behind[keyOf{group[i].Source, group[i].Key}]; err != nil {
			p.failed[group[i].ID] = err
			continue
		}
		free = append(free, group[i])
	}
	return free
}

// result tells the relay the outcome of the messages. What was not begun comes again at once, unless nothing goes: then the consumer, or its
// database, is away.
func (p *call) result(ctx context.Context) error {
	if p.err != nil && ctx.Err() == nil && p.handled+len(p.failed) == 0 {
		return outbox.RetryLater(p.err, 0)
	}
	for i := range p.todo {
		p.failed[p.todo[i].ID] = outbox.RetryLater(outcomeOf(p.err), 0)
	}
	if len(p.failed) == 0 {
		return nil
	}
	return &outbox.PublishError{Failed: p.failed}
}

func outcomeOf(err error) error {
	if err != nil {
		return err
	}
	return errNoTime
}
