package outbox_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/outbox"
)

// A Publisher over two brokers joins what they say, and a circuit breaker puts what a Publisher says into words of its own: that a message is
// not named there does not mean that it was published.
func TestMessagesLeaveAlsoWhereWhatNamesOthersIsPartOfAnError(t *testing.T) {
	t.Parallel()
	named := func(messages []outbox.Message, kind string) error {
		failed := map[string]error{}
		for _, m := range messages {
			if m.Type == kind {
				failed[m.ID] = errRefused
			}
		}
		return &outbox.PublishError{Failed: failed}
	}
	other := errors.New("the other broker is away")
	for name, say := range map[string]func([]outbox.Message) error{
		"two that name":     func(ms []outbox.Message) error { return errors.Join(named(ms, "one"), named(ms, "two")) },
		"one that does not": func(ms []outbox.Message) error { return errors.Join(named(ms, "one"), other) },
		"it comes first":    func(ms []outbox.Message) error { return errors.Join(other, named(ms, "one")) },
		"it is away":        func(ms []outbox.Message) error { return errors.Join(named(ms, "one"), outbox.RetryLater(other, 0)) },
		"all is away":       func(ms []outbox.Message) error { return outbox.RetryLater(named(ms, "one"), 0) },
		"deep inside": func(ms []outbox.Message) error {
			return errors.Join(errors.Join(named(ms, "one")), errors.Join(nil, outbox.RetryLater(named(ms, "two"), 0)))
		},
	} {
		for form, wrap := range map[string]func(outbox.Publisher) outbox.Publisher{
			"a Publisher": func(p outbox.Publisher) outbox.Publisher { return p },
			"a route of several": func(p outbox.Publisher) outbox.Publisher {
				route := outbox.Route(map[string]outbox.Publisher{"orders": p, "none": p})
				return outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
					err := route.Publish(ctx, append(slices.Clip(messages), outbox.Message{ID: "none", Topic: "none"}))
					if part, ok := errors.AsType[*outbox.PublishError](err); ok {
						delete(part.Failed, "none")
					}
					return err
				})
			},
		} {
			t.Run(name+", "+form, func(t *testing.T) {
				t.Parallel()
				o := newOffice(t)
				b := &broker{}
				var fails atomic.Bool
				fails.Store(true)
				said := make(chan struct{}, 1)
				publisher := wrap(outbox.PublisherFunc(func(ctx context.Context, messages []outbox.Message) error {
					if messages[0].Topic == "none" {
						return nil
					}
					if len(messages) == 3 && fails.CompareAndSwap(true, false) {
						said <- struct{}{}
						return say(messages)
					}
					return b.Publish(ctx, messages)
				}))
				o.add(message("1", "one"), message("2", "two"), message("3", "three"))
				o.relay(publisher, swift())
				await(t, "the call of all three", said)
				o.empty()
				got := b.types()
				slices.Sort(got)
				want := []string{"one", "three", "two"}
				if name == "two that name" { // all others were published
					want = []string{"one", "two"}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q were published, want %q", got, want)
				}
			})
		}
	}
}
