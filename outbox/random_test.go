package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/lab/waiting"
	"github.com/idem-go/idem/outbox"
)

// model is a Divider that refuses some messages for a time, with and without naming them. It checks
// the order of each key.
type model struct {
	t      testing.TB
	mu     sync.Mutex
	random *rand.Rand
	next   map[string]int // of a topic and key
	tries  map[string]int
	left   int
	done   chan struct{}
}

func (m *model) Destination(topic string) string { return topic[:1] }

func (m *model) Publish(_ context.Context, messages []outbox.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := map[string]error{}
	var unnamed error
	for i := range messages {
		is := &messages[i]
		m.tries[is.ID]++
		switch n := m.number(is); {
		case n%97 == 5 && m.tries[is.ID] <= 2:
			failed[is.ID] = errRefused
		case n%397 == 7 && m.tries[is.ID] <= 2:
			failed[is.ID] = outbox.RetryLater(errRefused, 20*time.Millisecond)
		case n%997 == 11 && m.tries[is.ID] <= 3:
			unnamed = errors.New("it does not say which")
		}
	}
	if unnamed != nil {
		return unnamed
	}
	for i := range messages {
		is := &messages[i]
		if failed[is.ID] != nil {
			continue
		}
		key := is.Topic + "/" + is.Key
		switch n := m.number(is); {
		case n > m.next[key]:
			m.t.Errorf("%s: message %d is published before %d", key, n, m.next[key])
		case n == m.next[key]:
			m.next[key]++
			if m.left--; m.left == 0 {
				close(m.done)
			}
		}
	}
	if len(failed) > 0 {
		return &outbox.PublishError{Failed: failed}
	}
	return nil
}

func (m *model) number(is *outbox.Message) int {
	n, err := strconv.Atoi(is.Type)
	if err != nil {
		m.t.Error(err)
	}
	return n
}

// await waits until all messages are published. It fails if none is published within the limit of a
// wait.
func (m *model) await() {
	for before := -1; ; {
		select {
		case <-m.done:
			return
		case <-time.After(waiting.Limit):
		}
		m.mu.Lock()
		left := m.left
		m.mu.Unlock()
		if left == before {
			m.t.Fatalf("no message was published in %v, and %d are left", waiting.Limit, left)
		}
		before = left
	}
}

// Two processes publish IDEM_TEST_MESSAGES messages in two streams, 6,000 by default. Half of them
// exist at the start. Sessions of relays end meanwhile.
func TestRelay_KeepsOrderDuringBacklogAndFailures(t *testing.T) {
	t.Parallel()
	size, _ := strconv.Atoi(os.Getenv("IDEM_TEST_MESSAGES"))
	if size == 0 {
		size = 6000
	}
	o := newDatabase(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 0)), next: map[string]int{}, tries: map[string]int{}, left: size, done: make(chan struct{})}
	numbers := map[string]int{}
	some := func(n int) (messages []outbox.Message) {
		for range n {
			topic, key := fmt.Sprint(string(rune('a'+min(m.random.IntN(5), 2))), m.random.IntN(2)), fmt.Sprint(m.random.IntN(1+m.random.IntN(400)))
			number := numbers[topic+"/"+key]
			numbers[topic+"/"+key]++
			messages = append(messages, outbox.Message{Topic: topic, Key: key, Type: fmt.Sprint(number)})
		}
		return messages
	}
	o.add(some(size / 2)...)
	config := swift()
	config.BatchSize, config.MaxAttempts = 200, 1_000_000
	config.Streams = 2
	o.relay(m, config)
	o.relay(m, config)
	for added := size / 2; added < size; {
		n := min(1+m.random.IntN(200), size-added)
		o.add(some(n)...)
		if added += n; m.random.IntN(8) == 0 {
			o.endSessions()
		}
	}
	m.await()
	o.empty()
}
