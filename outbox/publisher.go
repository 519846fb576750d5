package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Publisher sends messages to a broker.
//
// Publish returns nil when the broker has accepted every message. A [*PublishError], which may be
// wrapped, names the messages that the broker has not accepted; it has accepted all others. After
// any other error nothing is known: no message counts as failed, and all of them are published
// again. If a *PublishError is joined with another error, the named messages have failed and
// nothing is known of the others. A message may be published twice, under the same ID.
//
// After two errors in a row that name no message, the relay publishes one message a call, in rounds
// of at most 32 messages. If the broker accepts at least one message of a round, each refused
// message counts one attempt, as if it had been named. Messages that were refused before the first
// one was accepted are tried once more first, because an outage may have ended in between. If the
// broker accepts none, the destination is unavailable: nothing counts, and the relay backs off. A
// round without a refused message ends this mode. So a Publisher should name the message: otherwise
// a failing message costs one call for each message of each round.
//
// The messages of a call are in order. No two of them have the same ID. No two have the same topic
// and key, unless the Publisher is an [OrderKeeper]. Each stream makes one call at a time. The
// context of a call ends after [RelayConfig.PublishTimeout]. Publish must not keep the slice or
// anything in it.
type Publisher interface {
	Publish(ctx context.Context, messages []Message) error
}

// OrderKeeper is a Publisher that accepts several messages of one topic and key in one call. If it
// does not publish a message, it publishes no later message of the same topic and key in the call,
// and names these as well. Any other Publisher receives one message of each key at a time, so that
// no message can overtake another.
type OrderKeeper interface {
	Publisher
	KeepsOrder() bool
}

// Divider is a Publisher with several destinations, each of which may be slow or unavailable. Each
// destination has its own queue, call and backoff. So several goroutines call Publish, each with
// messages of one destination. A destination that is slow, is unavailable, or for which Publish
// does not return blocks no other.
type Divider interface {
	Publisher
	// Destination names the destination of a topic. It must return at once. A changed answer takes
	// effect when no message of the topic is in the queue of the old destination.
	Destination(topic string) string
}

// companion is a Publisher with a background task, such as the Consumer of package direct, whose
// task handles redriven dead letters. Relay.Run calls RunBeside once.
type companion interface {
	Publisher
	RunBeside(ctx context.Context)
}

func keepsOrder(p Publisher) bool {
	keeper, ok := p.(OrderKeeper)
	return ok && keeper.KeepsOrder()
}

// PublisherFunc is a function that implements Publisher.
type PublisherFunc func(ctx context.Context, messages []Message) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, messages []Message) error {
	return f(ctx, messages)
}

// PublishError names the messages of a call that the broker has not accepted, with the reasons. The
// broker has accepted all others of the call. Each named message counts an attempt, unless its
// reason is marked by [RetryLater], or says that the context of the call has ended.
type PublishError struct {
	Failed map[string]error // by the ID of the message
}

// Error returns the number of the messages and one of the reasons.
func (e *PublishError) Error() string {
	for _, err := range e.Failed {
		return fmt.Sprintf("outbox: %d messages were not published; one of the reasons: %v", len(e.Failed), err)
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

// RetryLater marks err as one that counts no attempt, because a destination is unavailable or has
// no capacity for a message now. RetryLater returns nil if err is nil.
//
//   - As a reason in a [PublishError], it makes the message and its key wait for after, at most an
//     hour. With 0 the message is in the next call again.
//   - As the error of a call, it makes the destination wait for after, at most an hour, or for the
//     doubling backoff of the destination if that is longer.
//
// [RelayConfig.MaxOutage] bounds how long a message waits in total.
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
	if e.err == nil { // the destination was unavailable without an error of its own
		return "the destination is unavailable"
	}
	return e.err.Error()
}

// Unwrap returns the marked error.
func (e *retryLater) Unwrap() error { return e.err }

// Class is the class of a dead letter and of a waiting message.
func (e *retryLater) Class() string { return "unavailable" }

// RetryAfter reports whether err is marked by [RetryLater], and returns its duration.
func RetryAfter(err error) (after time.Duration, ok bool) {
	if later, ok := errors.AsType[*retryLater](err); ok {
		return later.after, true
	}
	return 0, false
}
