package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/panics"
)

// result is the outcome of a call of the Publisher for each of its messages.
type result struct {
	messages []messageResult // in the order of the call
	err      error           // an error that names no message
	took     time.Duration

	unavailable bool // err is marked by RetryLater
	retryAfter  time.Duration
	panicked    bool
}

type messageResult struct {
	status status
	err    error
	after  time.Duration // how long a postponed message waits
}

type status int

const (
	accepted  status = iota
	refused          // a PublishError names the message: an attempt counts
	postponed        // a PublishError names the message, with a RetryLater and a duration
	unsent           // a PublishError names the message, with a RetryLater of 0: it is in the next call again
	unknown          // an error that names no message leaves the outcome open
)

// newResult translates the error of a call. The parameter ended is true if the context of the call
// has ended. In that case, a message whose reason is a context error counts no attempt.
func newResult(messages []Message, err error, ended bool) *result {
	r := &result{messages: make([]messageResult, len(messages))}
	if err == nil {
		return r
	}
	named, rest := splitError(err)
	if named == nil || len(named.Failed) == 0 {
		named, rest = &PublishError{}, err
	}
	if n := len(named.Failed) - r.applyReasons(messages, named, ended); n > 0 {
		// The Publisher may have mixed up IDs, so the messages that it has not named may be unpublished
		// as well.
		rest = errors.Join(rest, fmt.Errorf("the Publisher has named %d messages that are not in the call", n))
	}
	if rest == nil {
		return r
	}
	r.err = errors.Join(rest, r.err)
	r.retryAfter, r.unavailable = RetryAfter(rest)
	_, r.panicked = errors.AsType[*panics.Error](rest)
	if r.panicked && len(messages) == 1 {
		r.messages[0], r.err = messageResult{status: refused, err: rest}, nil
		return r
	}
	for i := range r.messages {
		if r.messages[i].status == accepted {
			r.messages[i] = messageResult{status: unknown, err: rest}
		}
	}
	return r
}

// applyReasons sets the status of each message that the PublishError names, and returns the number
// of these messages.
func (r *result) applyReasons(messages []Message, named *PublishError, ended bool) (n int) {
	for i, m := range messages {
		reason, ok := named.Failed[m.ID]
		if !ok {
			continue
		}
		n++
		after, later := RetryAfter(reason)
		switch {
		case reason == nil:
			r.messages[i] = messageResult{status: refused, err: errors.New("the Publisher gave no reason")}
		case later && after == 0:
			r.messages[i] = messageResult{status: unsent, err: reason}
		case later:
			r.messages[i] = messageResult{status: postponed, err: reason, after: after}
		case ended && isContextError(reason):
			r.messages[i], r.err = messageResult{status: unknown, err: reason}, reason
		default:
			r.messages[i] = messageResult{status: refused, err: reason}
		}
	}
	return n
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// errNilPublishError replaces a nil *PublishError that a Publisher has returned as its error, which
// is a bug of the Publisher. The relay does not take it as success, because publishing messages
// twice is better than losing them.
var errNilPublishError = errors.New("the Publisher has returned a nil *PublishError; return a nil error instead")

// publishSafely calls a Publisher and returns a panic as an error. The methods of the returned
// errors are code of the Publisher and may panic too. So publishSafely calls each of these methods
// that the relay uses later. If a method of a message's reason panics, the panic becomes the
// reason. Any other panic counts as a panic of Publish.
func publishSafely(ctx context.Context, publisher Publisher, messages []Message) error {
	return panics.Try(func() error { return publishAndProbe(ctx, publisher, messages) })
}

func publishAndProbe(ctx context.Context, publisher Publisher, messages []Message) error {
	named, rest := splitError(publisher.Publish(ctx, messages))
	probe(rest)
	if named == nil {
		return rest
	}
	probed := &PublishError{Failed: maps.Clone(named.Failed)}
	for id, reason := range named.Failed {
		panicked := panics.Try(func() error {
			probe(reason)
			return nil
		})
		if panicked != nil {
			probed.Failed[id] = panicked
		}
	}
	if rest == nil {
		return probed
	}
	return errors.Join(probed, rest)
}

// probe calls the methods of err that the relay uses later, so that they panic here if they panic
// at all.
func probe(err error) {
	if err == nil {
		return
	}
	_, _, _ = deadletter.ClassOf(err), deadletter.ReasonOf(err), idem.CauseOf(err)
	_ = isContextError(err)
	if later, ok := errors.AsType[*retryLater](err); ok {
		probe(later.err)
	}
}

// splitError splits the error of a call into a PublishError and the rest. The PublishError is nil
// if the error names no messages. A PublishError inside of an error marked by RetryLater belongs to
// the rest. If the rest is not nil, messages that are not named may be unpublished.
func splitError(err error) (named *PublishError, rest error) {
	switch e := err.(type) {
	case *PublishError:
		if e == nil {
			return nil, errNilPublishError
		}
		return e, nil
	case *retryLater:
		return nil, err
	case interface{ Unwrap() error }:
		if named, rest = splitError(e.Unwrap()); named != nil {
			return named, rest
		}
	case interface{ Unwrap() []error }:
		var rests []error
		for _, part := range e.Unwrap() {
			partNamed, partRest := splitError(part)
			rests = append(rests, partRest)
			switch {
			case partNamed == nil:
			case named == nil:
				named = &PublishError{Failed: maps.Clone(partNamed.Failed)}
			default:
				for id, reason := range partNamed.Failed {
					named.Failed[id] = errors.Join(named.Failed[id], reason)
				}
			}
		}
		if named != nil {
			return named, errors.Join(rests...)
		}
	}
	return nil, err
}
