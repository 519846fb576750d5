package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/idemclient"
	"github.com/idem-go/idem/outbox"
)

// Endpoint is the receiver of webhooks.
type Endpoint struct {
	URL string

	// Secrets sign each webhook, as Standard Webhooks specifies. Each secret is "whsec_" and the
	// base64 of 24 to 64 bytes. While a secret is being replaced there are two, and a receiver needs
	// to know only one of them. Each endpoint must have its own secrets. If two endpoints share a
	// secret, one receiver could sign webhooks for the other.
	Secrets []string
}

type sender struct {
	base http.RoundTripper
	now  func() time.Time
}

// target is the endpoint of a topic during one call of Publish.
type target struct {
	topic  string
	url    string
	client *http.Client
}

// target returns the target of a topic. It fails if the secrets of the endpoint are invalid. The
// error does not contain a secret.
func (s sender) target(topic string, endpoint Endpoint) (*target, error) {
	secrets, err := newSecrets(endpoint.Secrets, fromBase64)
	if err != nil {
		return nil, err
	}
	transport := &idemclient.Transport{
		Base:           &signer{s.base, secrets, s.now},
		MaxAttempts:    2,
		AttemptTimeout: -1, // post sets one timeout for both attempts together
		MaxRetryAfter:  maxRetryAfter,
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &target{topic, endpoint.URL, &http.Client{Transport: transport, CheckRedirect: noRedirect}}, nil
}

// maxRead is how many bytes of a response body are read. The connection can be used again if the
// whole body was read.
const maxRead = 4 << 10

// post sends a message. It returns nil if the endpoint has answered with 2xx.
func (t *target) post(ctx context.Context, m outbox.Message, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(idemclient.WithKey(ctx, m.ID), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(m.Payload))
	if err != nil {
		return errors.New("webhook: the URL of the endpoint is invalid")
	}
	request.Header.Set("Content-Type", "application/json")
	if err := setHeaders(request.Header, m.Headers); err != nil {
		return err
	}
	request.Header.Set("Webhook-Id", m.ID)
	request.Header.Del("Idempotency-Key") // the Transport sets it
	response, err := t.client.Do(request)
	if err != nil {
		return withoutURL(err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, maxRead)
	if response.StatusCode/100 == 2 {
		return nil
	}
	return &StatusError{response.StatusCode, retryAfter(response.Header)}
}

// setHeaders sets the headers of a message. It fails if HTTP would change them: two names that
// differ only in case are one field, and spaces around a value are removed.
func setHeaders(header http.Header, own map[string]string) error {
	seen := make(map[string]bool, len(own))
	for name, value := range own {
		canonical := http.CanonicalHeaderKey(name)
		if seen[canonical] || strings.Trim(value, " \t") != value {
			return fmt.Errorf("webhook: HTTP would change the value of the header %.64q", name)
		}
		seen[canonical] = true
		header.Set(name, value)
	}
	return nil
}

// withoutURL removes the URL from an error of http.Client, because its path may contain a secret.
// It also truncates the error, which contains the whole response if that is not valid HTTP.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	if len(err.Error()) > maxText {
		err = truncated{err}
	}
	return fmt.Errorf("webhook: the endpoint has not answered: %w", err)
}

// signer signs each attempt anew, because the signature covers the time of the attempt.
type signer struct {
	base    http.RoundTripper
	secrets secrets
	now     func() time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *signer) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		defer request.Body.Close()
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
	}
	signed := request.Clone(request.Context())
	signed.Body, signed.GetBody = io.NopCloser(bytes.NewReader(body)), nil
	if len(body) == 0 {
		signed.Body = http.NoBody
	}
	seconds := strconv.FormatInt(s.now().Unix(), 10)
	signatures := s.secrets.sign(standardContent(request.Header.Get("Webhook-Id"), seconds, body)...)
	signed.Header.Set("Webhook-Timestamp", seconds)
	signed.Header.Set("Webhook-Signature", formatStandard(signatures))
	return s.base.RoundTrip(signed)
}
