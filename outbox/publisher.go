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
// wrapped, names the messages that the broker has not accepted, and means that the broker has
// accepted the others. After any other error the relay knows nothing about the messages: no attempt
// counts, and all of them are published again. If a *PublishError is joined with another error, the
// named messages have failed and nothing is known about the others. So a message may be published
// twice, under the same ID.
//
// After two consecutive errors that name no message, the relay publishes one message per call, in
// rounds of at most 32 calls. If the broker accepts at least one message of a round, an attempt
// counts for each message that it refused in the round. There is an exception, because an outage
// may have ended just before the first accepted message. Messages that were refused before that
// message are tried again at the beginning of the next round, and only a second refusal counts. If
// the broker accepts no message of a round, the destination is unavailable: no attempt counts, and
// the relay backs off. A round without a refused message ends this mode. Until then every message
// takes a call of its own, so a Publisher should name failing messages.
//
// The messages of a call are in the order in which they were added. No two of them have the same
// ID. Two messages with a key never have the same topic and key, unless the Publisher is an
// [OrderKeeper]. Each stream makes one call at a time, or one for each destination of a [Divider].
// The context of a call ends after [RelayConfig.PublishTimeout]. After Publish has returned, it
// must not use the slice or anything in it.
type Publisher interface {
	Publish(ctx context.Context, messages []Message) error
}

// OrderKeeper is a Publisher that accepts several messages of one topic and key in one call. If
// Publish cannot publish one of them, it must not publish the later messages of this topic and key
// in the call, and must name them as well. If a Publisher has no method KeepsOrder, or KeepsOrder
// returns false, a call has only one message of each key, so that no message can overtake another.
type OrderKeeper interface {
	Publisher
	KeepsOrder() bool
}

// Divider is a Publisher with several destinations, each of which may be slow or unavailable. Each
// destination has its own queue, call and backoff. So several goroutines call Publish, each with
// messages of one destination. A destination blocks no other, even if a call to it never returns.
type Divider interface {
	Publisher
	// Destination returns the name of the destination of a topic. It must return at once. If it
	// returns another name later, the relay uses the new destination as soon as the old one has no
	// message in its queue or in a call.
	Destination(topic string) string
}

// companion is a Publisher with a background task, which Relay.Run runs by one call of RunBeside.
// An example is the Consumer of package direct: its task handles redriven dead letters.
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
// broker has accepted all other messages of the call. Each named message counts an attempt, unless
// its reason is marked by [RetryLater] or only says that the context of the call has ended.
type PublishError struct {
	Failed map[string]error // by the ID of the message
}

// Error returns the number of named messages and one of the reasons.
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

// RetryLater marks err, so that the relay counts no attempt. A Publisher uses it if a destination
// is unavailable or has no capacity for a message now. RetryLater returns nil if err is nil.
//
//   - If a reason in a [PublishError] is marked, the message and the later messages of its key wait
//     for the given duration, at most an hour. If the duration is 0, the message is in the next
//     call again.
//   - If the error of a whole call is marked, the destination waits for the given duration, at most
//     an hour, or for its own doubling backoff if that is longer.
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
	if e.err == nil { // from expire, for a call without an error of its own
		return "the destination is unavailable"
	}
	return e.err.Error()
}

// Unwrap returns the error that RetryLater has marked.
func (e *retryLater) Unwrap() error { return e.err }

// Class returns the class of dead letters and of waiting messages with this error.
func (e *retryLater) Class() string { return "unavailable" }

// RetryAfter reports whether err is marked by [RetryLater], and returns the duration of the mark.
func RetryAfter(err error) (after time.Duration, ok bool) {
	if later, ok := errors.AsType[*retryLater](err); ok {
		return later.after, true
	}
	return 0, false
}
