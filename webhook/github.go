package webhook

import (
	"encoding/hex"
	"net/http"
	"strings"
)

// GitHub verifies the field X-Hub-Signature-256, by one of the secrets. The ID of an event is X-GitHub-Delivery, which stays the
// same when GitHub delivers again, and its Type X-GitHub-Event.
//
// GitHub signs the body and nothing else. There is no time to be too old, so an old delivery that comes again is known for as
// long as the inbox remembers it. And a stranger who has got hold of a delivery could deliver it under another ID, or Type: TLS keeps it from
// strangers. If that is not enough, ByContent knows such an event by its body.
func GitHub(secrets ...string) (Verifier, error) {
	read, err := newSecrets(secrets, asWritten)
	if err != nil {
		return nil, err
	}
	return &github{read}, nil
}

type github struct{ secrets secrets }

// Verify implements Verifier.
func (g *github) Verify(r *http.Request, body []byte) (Event, error) {
	value, err := field(r.Header, "X-Hub-Signature-256")
	if err != nil {
		return Event{}, err
	}
	if !g.secrets.match(parseGitHub(value), body) {
		return Event{}, ErrSignature
	}
	id, err := field(r.Header, "X-GitHub-Delivery")
	return Event{ID: id, Type: r.Header.Get("X-GitHub-Event")}, err
}

// parseGitHub reads "sha256=757107…".
func parseGitHub(value string) [][]byte {
	text, ok := strings.CutPrefix(value, "sha256=")
	signature, err := hex.DecodeString(text)
	if !ok || err != nil {
		return nil
	}
	return [][]byte{signature}
}
