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

func TestPublishEach(t *testing.T) {
	t.Parallel()
	errOwn, errCommon := errors.New("too large"), errors.New("the broker is unavailable")
	var all sync.WaitGroup
	all.Add(5)
	for name, test := range map[string]struct {
		send  func(ctx context.Context, cancel context.CancelFunc, id string) error
		named []string
		want  error
	}{
		"it sends concurrently, and the context ends after all sends": {send: func(_ context.Context, cancel context.CancelFunc, _ string) error {
			all.Done()
			all.Wait()
			cancel()
			return nil
		}},
		"it names failed messages": {named: []string{"0", "3"}, want: errOwn, send: func(_ context.Context, _ context.CancelFunc, id string) error {
			switch id {
			case "0":
				return errOwn
			case "3":
				panic("a bug")
			}
			return nil
		}},
		"a common error cancels the others and names none": {want: errCommon, send: func(ctx context.Context, _ context.CancelFunc, id string) error {
			switch id {
			case "0":
				return errOwn
			case "1":
				return errCommon
			}
			<-ctx.Done()
			return ctx.Err()
		}},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var messages []outbox.Message
		for i := range 5 {
			messages = append(messages, outbox.Message{ID: fmt.Sprint(i)})
		}
		err := outbox.PublishEach(ctx, messages, func(ctx context.Context, m outbox.Message) error { return test.send(ctx, cancel, m.ID) },
			func(err error) bool { return errors.Is(err, errOwn) })
		var named []string
		if failed, ok := errors.AsType[*outbox.PublishError](err); ok {
			named = slices.Sorted(maps.Keys(failed.Failed))
		}
		if diff := cmp.Diff(test.named, named); !errors.Is(err, test.want) || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		cancel()
	}
}
