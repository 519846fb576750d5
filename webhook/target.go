package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/outbox"
)

// sender is how webhooks are sent, wherever they go.
type sender struct {
	base http.RoundTripper
	now  func() time.Time
}

// target is where the messages of a topic go, in one call.
type target struct {
	topic  string
	url    string
	client *http.Client
}

// target refuses an endpoint whose webhooks could not be signed. An error tells nothing of its secrets.
func (s sender) target(topic string, endpoint Endpoint) (*target, error) {
	secrets, err := newSecrets(endpoint.Secrets, fromBase64)
	if err != nil {
		return nil, err
	}
	transport := &idemclient.Transport{
		Base:           &signer{s.base, secrets, s.now},
		MaxAttempts:    2,
		AttemptTimeout: -1,           // the timeout of the message bounds them together
		MaxRetryAfter:  maxAskedRest, // what is longer than Timeout is not waited for
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &target{topic, endpoint.URL, client}, nil
}

// maxRead is how much of an answer is read, so that its connection can be used again.
const maxRead = 4 << 10

// post sends a message and returns nil if it was taken.
func (t *target) post(ctx context.Context, m outbox.Message, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(idemclient.WithKey(ctx, m.ID), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(m.Payload))
	if err != nil {
		return errors.New("webhook: the URL of the endpoint is none")
	}
	request.Header.Set("Content-Type", "application/json")
	if err := setHeaders(request.Header, m.Headers); err != nil {
		return err
	}
	request.Header.Set("Webhook-Id", m.ID)
	request.Header.Del("Idempotency-Key") // the transport's to set
	response, err := t.client.Do(request)
	if err != nil {
		return withoutURL(err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxRead) // what it says does not matter
	if response.StatusCode/100 == 2 {
		return nil
	}
	return &StatusError{response.StatusCode, retryAfter(response.Header)}
}

// withoutURL takes the URL out of an error of http.Client: its path may be a secret. What an endpoint has answered that is no HTTP is
// in such an error as well, all of it.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if len(err.Error()) > maxText {
		err = brief{err}
	}
	return fmt.Errorf("webhook: the endpoint has not answered: %w", err)
}
