package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/idem-go/idem/outbox"
)

// publish calls a Publisher. That it panics is an error.
func publish(ctx context.Context, p outbox.Publisher, messages []outbox.Message) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("the Publisher has panicked: %v", value)
		}
	}()
	return p.Publish(ctx, messages)
}

// blamed returns the IDs of the messages that the error of a call blames: an attempt of them counts. That its own context has ended is
// no message's fault.
func blamed(ctx context.Context, err error) []string {
	named, ok := errors.AsType[*outbox.PublishError](err)
	if !ok {
		return nil
	}
	var ids []string
	for id, reason := range named.Failed {
		_, later := outbox.RetryAfter(reason)
		ended := ctx.Err() != nil && (errors.Is(reason, context.Canceled) || errors.Is(reason, context.DeadlineExceeded))
		if !later && !ended {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// isNamed reports whether an error says which messages were not published.
func isNamed(err error) bool {
	_, ok := errors.AsType[*outbox.PublishError](err)
	return ok
}
