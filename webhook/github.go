package webhook

import (
	"encoding/hex"
	"net/http"
	"strings"
)

// GitHub verifies the header field X-Hub-Signature-256 with one of the secrets. The ID of an event
// is in X-GitHub-Delivery, which is the same when GitHub delivers the event again. The Type is in
// X-GitHub-Event.
//
// GitHub signs only the body, and no time. So if an attacker repeats an old delivery, the inbox
// recognizes the duplicate only while it stores the record of the event. The ID and the Type are
// not signed either: an attacker who has a copy of a delivery could send it under another ID or
// Type. TLS keeps deliveries secret; if that is not enough, use ByContent.
func GitHub(secrets ...string) (Verifier, error) { return newScheme(secrets, asBytes, verifyGitHub) }

func verifyGitHub(secrets secrets, r *http.Request, body []byte) (Event, error) {
	value, err := singleField(r.Header, "X-Hub-Signature-256")
	if err != nil {
		return Event{}, err
	}
	if !secrets.match(parseGitHub(value), body) {
		return Event{}, ErrSignature
	}
	id, err := singleField(r.Header, "X-GitHub-Delivery")
	return Event{ID: id, Type: r.Header.Get("X-GitHub-Event")}, err
}

// parseGitHub parses a signature such as "sha256=757107…".
func parseGitHub(value string) [][]byte {
	text, ok := strings.CutPrefix(value, "sha256=")
	signature, err := hex.DecodeString(text)
	if !ok || err != nil {
		return nil
	}
	return [][]byte{signature}
}
