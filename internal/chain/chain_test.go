package chain_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/internal/chain"
	"github.com/idem-go/idem/outbox"
)

var (
	errOwn  = errors.New("too large")
	errAway = errors.New("the broker is away")
)

func blames(err error) bool { return errors.Is(err, errOwn) }

func messages(keys ...string) []outbox.Message {
	var all []outbox.Message
	for i, key := range keys {
		all = append(all, outbox.Message{ID: fmt.Sprint(i), Topic: "orders", Key: key})
	}
	return all
}

// broker remembers what it was sent.
type broker struct {
	mu   sync.Mutex
	sent []string
	fail map[string]error
}

func (b *broker) send(_ context.Context, m outbox.Message) error {
	time.Sleep(rand.N(time.Millisecond))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, m.Key+m.ID)
	return b.fail[m.ID]
}

func TestMessagesOfOneKeyAreSentOneAfterTheOther(t *testing.T) {
	t.Parallel()
	var b broker
	if err := chain.Publish(t.Context(), messages("a", "b", "a", "", "a", "", "b"), b.send, blames); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, id := range b.sent {
		got[id[:1]] = append(got[id[:1]], id)
	}
	if diff := cmp.Diff([]string{"a0", "a2", "a4"}, got["a"]); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"b1", "b6"}, got["b"]); diff != "" {
		t.Error(diff)
	}
}

func TestNextMessageOfAKeyIsNotSentBeforeTheBrokerHasTheOneBefore(t *testing.T) {
	t.Parallel()
	first, others := make(chan struct{}), make(chan struct{})
	err := chain.Publish(t.Context(), messages("a", "a", "b", "", ""), func(_ context.Context, m outbox.Message) error {
		switch {
		case m.ID == "0": // waits for the other keys
			for range 3 {
				<-others
			}
			close(first)
		case m.Key == "a":
			select {
			case <-first:
			default:
				t.Error("it was sent too early")
			}
		default:
			others <- struct{}{}
		}
		return nil
	}, blames)
	if err != nil {
		t.Error(err)
	}
}

func TestMessageThatIsBlamedHoldsBackItsKeyAlone(t *testing.T) {
	t.Parallel()
	b := broker{fail: map[string]error{"0": errOwn}}
	err := chain.Publish(t.Context(), messages("a", "b", "a", "", "a", "b"), b.send, blames)
	var named *outbox.PublishError
	if !errors.As(err, &named) || !errors.Is(err, errOwn) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0", "2", "4"}, slices.Sorted(maps.Keys(named.Failed))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"3", "a0", "b1", "b5"}, slices.Sorted(slices.Values(b.sent))); diff != "" {
		t.Error(diff)
	}
}

func TestErrorThatIsNobodysFaultBlamesNobody(t *testing.T) {
	t.Parallel()
	b := broker{fail: map[string]error{"0": errOwn, "1": errAway}}
	err := chain.Publish(t.Context(), messages("a", "b", "a", "b"), b.send, blames)
	var named *outbox.PublishError
	if !errors.Is(err, errAway) || errors.As(err, &named) {
		t.Errorf("%v, want %v", err, errAway)
	}
	if slices.Contains(b.sent, "b3") {
		t.Error("a message was sent behind one of its key that was not")
	}
}
