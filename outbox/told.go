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
	err := publisher.Publish(ctx, messages)
	if err == nil {
		return nil
	}
	named, ok := errors.AsType[*PublishError](err)
	switch {
	case !ok:
		hear(err)
		return err
	case named == nil:
		return errNilPublishError
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
	return told
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
