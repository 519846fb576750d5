package outbox

import (
	"context"
	"errors"
	"maps"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/guard"
)

// errNilPublishError names none, and is no success: a message that is sent twice is better than one that is lost.
var errNilPublishError = errors.New("the Publisher has returned a nil *PublishError, which is an error that is not nil")

// publishVia calls a Publisher. The methods of the error that it returns are functions of the user's as well: each is called here once,
// where one that panics is a panic of the Publisher's, or of the message of which it is the reason.
func publishVia(ctx context.Context, publisher Publisher, messages []Message) error {
	named, rest := namedIn(publisher.Publish(ctx, messages))
	hear(rest)
	if named == nil {
		return rest
	}
	told := &PublishError{Failed: maps.Clone(named.Failed)}
	for id, reason := range named.Failed {
		panicked := guard.Call(func() error {
			hear(reason)
			return nil
		})
		if panicked != nil {
			told.Failed[id] = panicked
		}
	}
	if rest != nil {
		return errors.Join(told, rest)
	}
	return told
}

// namedIn parts what a Publisher has returned into what is said of messages by name, which is nil if nothing is, and what is said of none of
// them. That a message is not named means that it was published only where nothing is left: not where two errors are joined, of which one
// is no PublishError, as those of two brokers may be, and not where the destination is said to be away.
func namedIn(err error) (named *PublishError, rest error) {
	switch e := err.(type) {
	case *PublishError:
		if e == nil {
			return nil, errNilPublishError
		}
		return e, nil
	case *AwayError, *LaterError:
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

// hear calls whatever is called of an error later.
func hear(err error) {
	if err == nil {
		return
	}
	_, _, _ = deadletter.ClassOf(err), deadletter.ReasonOf(err), idem.CauseOf(err)
	_, _, _ = errors.Is(err, ErrUnsent), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded)
	if away, ok := errors.AsType[*AwayError](err); ok {
		hear(away.Err)
	}
}
