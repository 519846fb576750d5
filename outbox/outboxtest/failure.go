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

// blamed returns the IDs of the messages that an error blames: an attempt of them counts.
func blamed(err error) []string {
	named, ok := errors.AsType[*outbox.PublishError](err)
	if !ok {
		return nil
	}
	var ids []string
	for id, reason := range named.Failed {
		if _, away := errors.AsType[*outbox.AwayError](reason); !away && !errors.Is(reason, outbox.ErrUnsent) {
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
