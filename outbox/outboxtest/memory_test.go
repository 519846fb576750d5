package outboxtest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/idem-go/idem/outbox"
)

var (
	errUnavailable = errors.New("the broker is unavailable")
	errRefused     = errors.New("the broker refuses the message")
)

// memory is a broker in memory that is its own Publisher.
type memory struct {
	mu     sync.Mutex
	stored []outbox.Message
	read   int
	down   bool
	hangs  bool
}

func (m *memory) Publish(ctx context.Context, messages []outbox.Message) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	failed := map[string]error{}
	for _, msg := range messages {
		if err := refuses(msg); err != nil {
			failed[msg.ID] = err
			continue
		}
		m.store(msg)
	}
	if len(failed) > 0 {
		return &outbox.PublishError{Failed: failed}
	}
	return nil
}

// ready returns an error if the broker is down. It blocks while the broker hangs.
func (m *memory) ready(ctx context.Context) error {
	m.mu.Lock()
	down, hangs := m.down, m.hangs
	m.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	if down {
		return errUnavailable
	}
	return ctx.Err()
}

func refuses(msg outbox.Message) error {
	switch {
	case msg.Type == "panics":
		panic("a bug")
	case msg.Topic != "orders", msg.Type == "refused":
		return errRefused
	}
	return nil
}

// store stores a copy of a message.
func (m *memory) store(msg outbox.Message) {
	msg.Payload, msg.Headers = slices.Clone(msg.Payload), maps.Clone(msg.Headers)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = append(m.stored, msg)
}

func (m *memory) arrived(context.Context) ([]outbox.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.read > len(m.stored) {
		m.read = 0
	}
	all := slices.Clone(m.stored[m.read:])
	m.read = len(m.stored)
	return all, nil
}

func (m *memory) set(down, hangs bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down, m.hangs = down, hangs
}

func (m *memory) isDown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down || m.hangs
}

// target returns a Target with the Publisher p.
func (m *memory) target(p outbox.Publisher) Target {
	return Target{
		Publisher: p, Topic: "orders", Arrived: m.arrived,
		Bad: map[string]func(*outbox.Message){
			"refused":       func(msg *outbox.Message) { msg.Type = "refused" },
			"panics":        func(msg *outbox.Message) { msg.Type = "panics" },
			"no such topic": func(msg *outbox.Message) { msg.Topic = "returns" },
		},
		Away: map[string]func() func(){
			"stopped": func() func() { m.set(true, false); return func() { m.set(false, false) } },
			"hangs":   func() func() { m.set(false, true); return func() { m.set(false, false) } },
		},
	}
}
