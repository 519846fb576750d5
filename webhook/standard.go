package webhook

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// StandardWebhooks verifies what is signed as https://www.standardwebhooks.com says, by one of the secrets. A secret is base64,
// with or without "whsec_" in front. The fields are Webhook-Id, Webhook-Timestamp and Webhook-Signature; of the signatures,
// those of version v1 count (HMAC-SHA256). The ID of an event is signed, and has no full stop in it: it could be mistaken
// for the end of the ID.
func StandardWebhooks(secrets ...string) (Verifier, error) {
	return newStandard("Webhook-", secrets)
}

// Svix is StandardWebhooks with the names of the fields that it had before it was a standard, and that some providers still
// send: Svix-Id, Svix-Timestamp and Svix-Signature.
func Svix(secrets ...string) (Verifier, error) {
	return newStandard("Svix-", secrets)
}

type standard struct {
	prefix  string
	secrets secrets
}

func newStandard(prefix string, texts []string) (Verifier, error) {
	secrets, err := newSecrets(texts, fromBase64)
	if err != nil {
		return nil, err
	}
	return &standard{prefix, secrets}, nil
}

// Verify implements Verifier.
func (s *standard) Verify(r *http.Request, body []byte) (Event, error) {
	var fields [3]string
	for i, name := range []string{"Id", "Timestamp", "Signature"} {
		value, err := field(r.Header, s.prefix+name)
		if err != nil {
			return Event{}, err
		}
		fields[i] = value
	}
	id, digits, signatures := fields[0], fields[1], fields[2]
	at, err := unixTime(digits)
	switch {
	case err != nil:
		return Event{}, err
	case strings.Contains(id, "."):
		return Event{}, fmt.Errorf("%w: there is a full stop in the id", ErrSignature)
	case !s.secrets.match(parseStandard(signatures), signedByStandard(id, digits, body)...):
		return Event{}, ErrSignature
	}
	return Event{ID: id, SentAt: at}, nil
}

func signedByStandard(id, digits string, body []byte) [][]byte {
	return [][]byte{[]byte(id + "." + digits + "."), body}
}

const versionStandard = "v1,"

// parseStandard reads the signatures of a list, which are separated by spaces. Versions that are unknown do not count.
func parseStandard(list string) (signatures [][]byte) {
	for text := range strings.SplitSeq(list, " ") {
		encoded, ok := strings.CutPrefix(text, versionStandard)
		if !ok {
			continue
		}
		if signature, err := base64.StdEncoding.Strict().DecodeString(encoded); err == nil {
			signatures = append(signatures, signature)
		}
	}
	return signatures
}

// signatureList is what parseStandard reads.
func signatureList(signatures [][]byte) string {
	texts := make([]string, len(signatures))
	for i, signature := range signatures {
		texts[i] = versionStandard + base64.StdEncoding.EncodeToString(signature)
	}
	return strings.Join(texts, " ")
}
