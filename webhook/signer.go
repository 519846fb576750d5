package webhook

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"time"
)

// signer signs each attempt, as its time is in the signature.
type signer struct {
	base    http.RoundTripper
	secrets secrets
	now     func() time.Time
}

// RoundTrip implements http.RoundTripper.
func (s *signer) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := readAll(request.Body)
	if err != nil {
		return nil, err
	}
	signed := request.Clone(request.Context())
	signed.Body, signed.GetBody = io.NopCloser(bytes.NewReader(body)), nil
	if len(body) == 0 {
		signed.Body = http.NoBody
	}
	digits := strconv.FormatInt(s.now().Unix(), 10)
	signatures := s.secrets.sign(signedByStandard(request.Header.Get("Webhook-Id"), digits, body)...)
	signed.Header.Set("Webhook-Timestamp", digits)
	signed.Header.Set("Webhook-Signature", signatureList(signatures))
	return s.base.RoundTrip(signed)
}

func readAll(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	defer body.Close()
	return io.ReadAll(body)
}
