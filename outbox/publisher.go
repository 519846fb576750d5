package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Publisher hands messages to a broker. All of a call are published when it returns nil. A [*PublishError] names those that
// were not. Any other error blames none: the broker is away, or one of the messages is bad and the Publisher cannot tell which. Where both are
// joined, as of two brokers, those that are named have failed, and the others are published again.
// The relay then publishes messages one at a time until it knows: a message that fails alone although another one is
// published before and after it has failed. A message may come twice, under the same ID.
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

// Divider is a Publisher that sends to several destinations, each of which may be slow or away. The relay calls it for one
// destination at a time, for several of them side by side: then it is called by several goroutines. A destination that is slow,
// or away, or for which it does not return, holds up no other.
type Divider interface {
	Publisher
	// Destination names where the messages of a topic go. It returns at once. If its answer changes, that counts once nothing of the
	// topic is under way or left at the old one.
	Destination(topic string) string
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

// PublishError names the messages of a call that were not published, and why not. All others of the call were, unless it is joined with an error
// that names none, or is inside of an [*AwayError]. A reason that is
// an [*AwayError], a [*LaterError] or [ErrUnsent] counts no attempt.
type PublishError struct {
	Failed map[string]error // by the ID of the message: no call has two of one ID, also of two topics
}

// AwayError says that the destination of a message is away. No attempt is counted, however long that lasts, up to
// [RelayConfig.MaxAway]. It is a reason in a [PublishError], or the error of a call.
type AwayError struct {
	RetryAfter time.Duration // for how long the destination asks to be left alone: up to an hour; 0 if it does not ask
	Err        error
}

func (e *AwayError) Error() string { return fmt.Sprintf("the destination is away: %v", e.Err) }

// Unwrap returns the error that says so.
func (e *AwayError) Unwrap() error { return e.Err }

// Class is that of a dead letter.
func (e *AwayError) Class() string { return "away" }

// LaterError says that one message is to be published later, as one that its consumer has failed with. No attempt is counted, and it holds
// back its key meanwhile and no other. It is a reason in a [PublishError].
type LaterError struct {
	After time.Duration // for how long it is to be left alone: up to an hour
	Err   error
}

func (e *LaterError) Error() string { return fmt.Sprintf("to be published later: %v", e.Err) }

// Unwrap returns the error that says why.
func (e *LaterError) Unwrap() error { return e.Err }

// Class is what idem outbox list shows of it.
func (e *LaterError) Class() string { return "later" }

// Companion is a Publisher that has something to do beside publishing. A Relay calls RunBeside once, in each process, when its Run begins.
// It returns soon after the end of ctx, and Run waits for that.
type Companion interface {
	Publisher
	RunBeside(ctx context.Context)
}

// ErrUnsent says of a message that the Publisher has not begun with it, because the call has no time or no room for it. The relay
// comes back with it at once. No attempt is counted.
var ErrUnsent = errors.New("outbox: the message was not sent in this call")

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
