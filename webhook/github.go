package webhook

import (
	"encoding/hex"
	"net/http"
	"strings"
)

// GitHub verifies the field X-Hub-Signature-256 with one of the secrets. The ID of an event is
// X-GitHub-Delivery, which is the same when GitHub delivers the event again. The Type is
// X-GitHub-Event.
//
// GitHub signs only the body. No time is signed, so an old delivery that is repeated is a duplicate
// only as long as the inbox keeps its record. The ID and the Type are not signed, so an attacker
// with a copy of a delivery could send it under another ID or Type. TLS keeps deliveries secret; if
// that is not enough, use ByContent.
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

// parseGitHub parses "sha256=757107…".
func parseGitHub(value string) [][]byte {
	text, ok := strings.CutPrefix(value, "sha256=")
	signature, err := hex.DecodeString(text)
	if !ok || err != nil {
		return nil
	}
	return [][]byte{signature}
}
