package idemnats

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/idem-go/idem/outbox"
)

func TestPublisher_NamesNoMessageOfAFullAccount(t *testing.T) {
	const badRequest, accountFull, streamFull = 10003, 10002, 10077
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"refused message", &jetstream.APIError{Code: 400, ErrorCode: badRequest}, true},
		{"full account", outbox.RetryLater(&jetstream.APIError{Code: 400, ErrorCode: accountFull}, 0), false},
		{"full stream", outbox.RetryLater(&jetstream.APIError{Code: 503, ErrorCode: streamFull}, 0), false},
		{"too large", nats.ErrMaxPayload, true},
		{"no connection", nats.ErrConnectionClosed, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := concernsMessage(test.err); got != test.want {
				t.Errorf("concernsMessage(%v) = %v", test.err, got)
			}
			publish := func(context.Context, outbox.Message) error { return test.err }
			err := outbox.PublishEach(t.Context(), []outbox.Message{{ID: "1"}, {ID: "2"}}, publish, concernsMessage)
			var named *outbox.PublishError
			if errors.As(err, &named) != test.want {
				t.Errorf("PublishEach: %v", err)
			}
		})
	}
}
