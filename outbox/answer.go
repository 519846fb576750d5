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

// verdict is what a Publisher has answered about each message of a call.
type verdict struct {
	replies []reply // nil if all are accepted
	err     error   // names no message

	unavailable bool // the error of the call is by RetryLater
	retryAfter  time.Duration
	panicked    bool
}

type reply struct {
	kind  replyKind
	err   error
	after time.Duration
}

type replyKind int

const (
	accepted  replyKind = iota
	refused             // by name: it counts an attempt
	postponed           // by RetryLater
	unsent              // it comes again in the next call
	doubtful            // nothing is known
)

func (v *verdict) of(i int) replyKind {
	if v.replies == nil {
		return accepted
	}
	return v.replies[i].kind
}

func (v *verdict) reason(i int) error        { return v.replies[i].err }
func (v *verdict) after(i int) time.Duration { return v.replies[i].after }

// judge sorts out what a Publisher has answered. over says that the context of the call has ended: an error that only says so is no
// message's fault.
func judge(messages []Message, err error, over bool) *verdict {
	v := &verdict{}
	if err == nil {
		return v
	}
	named, rest := namedIn(err)
	if named == nil || len(named.Failed) == 0 {
		named, rest = &PublishError{}, err
	}
	v.replies = make([]reply, len(messages))
	if met := v.take(messages, named, over); met < len(named.Failed) { // what it takes for IDs may be those of the others
		rest = errors.Join(rest, fmt.Errorf("the Publisher has named %d messages that it was not given", len(named.Failed)-met))
	}
	if rest == nil {
		return v
	}
	v.err = errors.Join(rest, v.err)
	v.retryAfter, v.unavailable = RetryAfter(rest)
	_, v.panicked = errors.AsType[*panics.Error](rest)
	if v.panicked && len(messages) == 1 {
		v.replies[0], v.err = reply{kind: refused, err: rest}, nil
		return v
	}
	for i := range v.replies {
		if v.replies[i].kind == accepted {
			v.replies[i] = reply{kind: doubtful, err: rest}
		}
	}
	return v
}

// take notes the messages that are named, and returns how many these are.
func (v *verdict) take(messages []Message, named *PublishError, over bool) (met int) {
	for i, m := range messages {
		reason, ok := named.Failed[m.ID]
		if !ok {
			continue
		}
		met++
		after, later := RetryAfter(reason)
		switch {
		case reason == nil:
			v.replies[i] = reply{kind: refused, err: errors.New("the Publisher gave no reason")}
		case later && after == 0:
			v.replies[i] = reply{kind: unsent, err: reason}
		case later:
			v.replies[i] = reply{kind: postponed, err: reason, after: after}
		case over && isContextError(reason):
			v.replies[i], v.err = reply{kind: doubtful, err: reason}, reason
		default:
			v.replies[i] = reply{kind: refused, err: reason}
		}
	}
	return met
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// errNilPublishError names no message, and is no success: a message that is published twice is better than one that is lost.
var errNilPublishError = errors.New("the Publisher has returned a nil *PublishError, which is an error that is not nil")

// publishSafely calls a Publisher, whose panic is an error. The methods of the error that it returns are functions of the user's as well.
// Each is called here once: a panic is then one of the Publisher, or of the message whose reason it is.
func publishSafely(ctx context.Context, publisher Publisher, messages []Message) (err error) {
	err = panics.Goexit()
	done := make(chan struct{})
	go func() { // it may end its goroutine
		defer close(done)
		err = panics.Try(func() error { return publishAndProbe(ctx, publisher, messages) })
	}()
	<-done
	return err
}

func publishAndProbe(ctx context.Context, publisher Publisher, messages []Message) error {
	named, rest := namedIn(publisher.Publish(ctx, messages))
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
	if rest != nil {
		return errors.Join(probed, rest)
	}
	return probed
}

// namedIn parts the error of a Publisher into what it says of named messages, nil if it names none, and the rest. A message that is not
// named is accepted only if there is no rest: not if two errors are joined, and not inside of RetryLater.
func namedIn(err error) (named *PublishError, rest error) {
	switch e := err.(type) {
	case *PublishError:
		if e == nil {
			return nil, errNilPublishError
		}
		return e, nil
	case *retryLater:
		return nil, err
	case interface{ Unwrap() error }:
		if named, rest = namedIn(e.Unwrap()); named != nil {
			return named, rest
		}
	case interface{ Unwrap() []error }:
		var rests []error
		for _, part := range e.Unwrap() {
			of, rest := namedIn(part)
			rests = append(rests, rest)
			switch {
			case of == nil:
			case named == nil:
				named = &PublishError{Failed: maps.Clone(of.Failed)}
			default:
				for id, reason := range of.Failed {
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

// probe calls what is called of an error later.
func probe(err error) {
	if err == nil {
		return
	}
	_, _, _ = deadletter.ClassOf(err), deadletter.ReasonOf(err), idem.CauseOf(err)
	_, _ = errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded)
	if later, ok := errors.AsType[*retryLater](err); ok {
		probe(later.err)
	}
}
