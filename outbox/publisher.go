package outbox

import (
	"context"
	"fmt"
)

// Publisher hands messages to a broker. All of a call are published when it returns nil. A [*PublishError] names those that
// were not. Any other error blames none: the broker is away, and the relay comes back with the same messages, in the same
// order. A message may come twice, under the same ID.
//
// The messages of a call are in order, and no two of them have the same topic and key, unless the Publisher is an
// [OrderKeeper]. It is called by one goroutine at a time for each stream, and its context ends after
// [RelayConfig.PublishTimeout]. It keeps neither the slice nor what is in it.
type Publisher interface {
	Publish(ctx context.Context, messages []Message) error
}

// OrderKeeper is a Publisher that may be given several messages of one topic and key in one call: if it does not publish one, it
// publishes none of the same topic and key behind it in the call, and names them as well. Any other Publisher is given one
// message of each key at a time, so that nothing can overtake.
type OrderKeeper interface {
	Publisher
	KeepsOrder() bool
}

func keepsOrder(p Publisher) bool {
	keeper, ok := p.(OrderKeeper)
	return ok && keeper.KeepsOrder()
}

// PublisherFunc is a Publisher that is one function.
type PublisherFunc func(ctx context.Context, messages []Message) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, messages []Message) error {
	return f(ctx, messages)
}

// PublishError names the messages of a call that were not published, and why not. All others of the call were.
type PublishError struct {
	Failed map[string]error // by the ID of the message
}

// Error says how many were not published, and one of the reasons.
func (e *PublishError) Error() string {
	for _, err := range e.Failed {
		return fmt.Sprintf("outbox: %d messages were not published, one of them because of: %v", len(e.Failed), err)
	}
	return "outbox: no message was published"
}

// Unwrap returns the reasons.
func (e *PublishError) Unwrap() []error {
	reasons := make([]error, 0, len(e.Failed))
	for _, err := range e.Failed {
		reasons = append(reasons, err)
	}
	return reasons
}
