package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Publisher hands messages to a broker.
//
// Publish returns nil when the broker has accepted every message. A [*PublishError], which may be wrapped, names the messages that
// it has not accepted; all others are. Any other error says that nothing is known: no message counts as failed, and all of them are
// published again. If both are joined, the named messages have failed and nothing is known of the others. A message may be
// published twice, under the same ID.
//
// After two errors in a row that name no message, the relay publishes one message a call, in rounds of at most 32 messages. If the broker
// accepts at least one message of a round, each refused message counts one attempt, as if it had been named; what was refused before the
// first one was accepted is tried once more before that, because an outage may have ended meanwhile. If it accepts none,
// the destination is unavailable: nothing counts, and the relay waits. A round without a refused message ends this. So a
// Publisher should name the message: otherwise a failing message costs one call for each message of each round.
//
// The messages of a call are in order. No two of them have the same ID, and no two the same topic and key, unless the Publisher is an
// [OrderKeeper]. Each stream makes one call at a time. The context of a call ends after [RelayConfig.PublishTimeout]. Publish must
// not keep the slice or what is in it.
type Publisher interface {
	Publish(ctx context.Context, messages []Message) error
}

// OrderKeeper is a Publisher that may be given several messages of one topic and key in one call. If it does not publish a message, it
// publishes none of the same topic and key behind it in the call, and names them as well. Any other Publisher is given one
// message of each key at a time, so that nothing can overtake.
type OrderKeeper interface {
	Publisher
	KeepsOrder() bool
}

// Divider is a Publisher that sends to several destinations, each of which may be slow or unavailable. Each destination has a queue,
// a call and a backoff of its own, so Publish is called by several goroutines, each with messages of one destination. A destination
// that is slow, is unavailable, or for which Publish does not return, holds up no other.
type Divider interface {
	Publisher
	// Destination names where the messages of a topic go. It returns at once. If its answer changes, that counts once nothing of the
	// topic is in the queue of the old destination.
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

// PublishError names the messages of a call that the broker has not accepted, and why. All others of the call are accepted. Each
// counts an attempt, unless its reason is by [RetryLater] or the context of the call has ended.
type PublishError struct {
	Failed map[string]error // by the ID of the message
}

// Error says how many were not accepted, and one of the reasons.
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

// RetryLater marks an error that counts no attempt, because a destination is unavailable, or has no time for a message now.
//
//   - As a reason in a [PublishError], the message and its key wait for so long, an hour at most. With 0 the message comes
//     again in the next call.
//   - As the error of a call, the destination waits for so long, an hour at most, or for a backoff that doubles if that is longer.
//
// [RelayConfig.MaxOutage] bounds how often that may happen to a message. RetryLater of nil is nil.
func RetryLater(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryLater{err, max(after, 0)}
}

type retryLater struct {
	err   error
	after time.Duration
}

func (e *retryLater) Error() string {
	if e.err == nil {
		return "the destination is unavailable"
	}
	return e.err.Error()
}

// Unwrap returns the error that is marked.
func (e *retryLater) Unwrap() error { return e.err }

// Class is that of a dead letter, and of a message that waits.
func (e *retryLater) Class() string { return "unavailable" }

// RetryAfter reports whether an error is marked by [RetryLater], and with which time.
func RetryAfter(err error) (after time.Duration, ok bool) {
	if later, ok := errors.AsType[*retryLater](err); ok {
		return later.after, true
	}
	return 0, false
}
