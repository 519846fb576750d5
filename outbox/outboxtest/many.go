package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/outbox"
)

// manyMessages is how many messages a relay gives to a Publisher in one call, if it is not told otherwise.
const manyMessages = 1000

// manyArrive gives as many messages as a relay does. What a call has no room for it names, and that comes again.
func manyArrive(t testing.TB, s Suite) {
	a := s.open(t)
	var sent []outbox.Message
	for i := range manyMessages {
		sent = append(sent, a.message(fmt.Sprint("customer ", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), a.patience)
	defer cancel()
	for left := sent; len(left) > 0; {
		err := a.call(ctx, left...)
		if ctx.Err() != nil {
			t.Fatalf("after %v %d of %d messages are not published: %v", a.patience, len(left), len(sent), err)
		}
		left = unpublished(left, err)
		if len(left) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	a.await(sent...)
}

// unpublished are the messages that a call has not published: all, if it has failed and names none.
func unpublished(messages []outbox.Message, err error) []outbox.Message {
	named, ok := errors.AsType[*outbox.PublishError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return messages
	}
	var left []outbox.Message
	for _, m := range messages {
		if _, failed := named.Failed[m.ID]; failed {
			left = append(left, m)
		}
	}
	return left
}
