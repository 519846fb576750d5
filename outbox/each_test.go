package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/outbox"
)

var (
	errOwn  = errors.New("too large")
	errAway = errors.New("the broker is away")
)

func isOwn(err error) bool { return errors.Is(err, errOwn) }

// publish calls PublishEach with messages whose IDs are 0 to n-1.
func publish(t *testing.T, n int, send func(context.Context, outbox.Message) error) error {
	var messages []outbox.Message
	for i := range n {
		messages = append(messages, outbox.Message{ID: fmt.Sprint(i)})
	}
	return outbox.PublishEach(t.Context(), messages, send, isOwn)
}

func TestPublishEach_SendsConcurrently(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	all.Add(5)
	err := publish(t, 5, func(context.Context, outbox.Message) error {
		all.Done()
		all.Wait()
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// It sends the other messages.
func TestPublishEach_NamesFailedMessages(t *testing.T) {
	t.Parallel()
	err := publish(t, 5, func(_ context.Context, m outbox.Message) error {
		switch m.ID {
		case "0":
			return errOwn
		case "3":
			panic("a bug")
		}
		return nil
	})
	var named *outbox.PublishError
	if !errors.As(err, &named) || !errors.Is(err, errOwn) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0", "3"}, slices.Sorted(maps.Keys(named.Failed))); diff != "" {
		t.Error(diff)
	}
}

// Otherwise the relay would publish the message again.
func TestPublishEach_SucceedsIfTheContextEndsAfterAllSends(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	send := func(context.Context, outbox.Message) error {
		cancel()
		return nil
	}
	if err := outbox.PublishEach(ctx, []outbox.Message{{ID: "0"}}, send, func(error) bool { return false }); err != nil {
		t.Error(err)
	}
}

// Such an error names no message.
func TestPublishEach_CancelsAfterACommonError(t *testing.T) {
	t.Parallel()
	err := publish(t, 5, func(ctx context.Context, m outbox.Message) error {
		switch m.ID {
		case "0":
			return errOwn
		case "1":
			return errAway
		}
		<-ctx.Done()
		return ctx.Err()
	})
	var named *outbox.PublishError
	if !errors.Is(err, errAway) || errors.As(err, &named) {
		t.Errorf("%v, want %v", err, errAway)
	}
}
