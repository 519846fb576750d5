package webhook

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// StandardWebhooks verifies signatures according to https://www.standardwebhooks.com with one of
// the secrets. A secret is base64, with or without the prefix "whsec_". The header fields are
// Webhook-Id, Webhook-Timestamp and Webhook-Signature. Signatures of versions other than v1
// (HMAC-SHA256) are ignored. The ID of an event is signed. It must not contain a full stop, because
// a full stop ends the ID in the signed content.
func StandardWebhooks(secrets ...string) (Verifier, error) {
	return newStandard("Webhook-", secrets)
}

// Svix is StandardWebhooks with the older field names that some providers still send: Svix-Id,
// Svix-Timestamp and Svix-Signature.
func Svix(secrets ...string) (Verifier, error) {
	return newStandard("Svix-", secrets)
}

func newStandard(prefix string, texts []string) (Verifier, error) {
	return newScheme(texts, fromBase64, func(secrets secrets, r *http.Request, body []byte) (Event, error) {
		return verifyStandard(prefix, secrets, r, body)
	})
}

func verifyStandard(prefix string, secrets secrets, r *http.Request, body []byte) (Event, error) {
	var fields [3]string
	for i, name := range []string{"Id", "Timestamp", "Signature"} {
		value, err := singleField(r.Header, prefix+name)
		if err != nil {
			return Event{}, err
		}
		fields[i] = value
	}
	id, seconds, signatures := fields[0], fields[1], fields[2]
	at, err := unixTime(seconds)
	switch {
	case err != nil:
		return Event{}, err
	case strings.Contains(id, "."):
		return Event{}, fmt.Errorf("%w: the id contains a full stop", ErrSignature)
	case !secrets.match(parseStandard(signatures), standardContent(id, seconds, body)...):
		return Event{}, ErrSignature
	}
	return Event{ID: id, SentAt: at}, nil
}

// standardContent returns the content of a webhook over which the signature is computed.
func standardContent(id, seconds string, body []byte) [][]byte {
	return [][]byte{[]byte(id + "." + seconds + "."), body}
}

const standardVersion = "v1,"

// parseStandard parses a list of signatures separated by spaces. It ignores signatures of unknown
// versions.
func parseStandard(list string) (signatures [][]byte) {
	for text := range strings.SplitSeq(list, " ") {
		encoded, ok := strings.CutPrefix(text, standardVersion)
		if !ok {
			continue
		}
		if signature, err := base64.StdEncoding.Strict().DecodeString(encoded); err == nil {
			signatures = append(signatures, signature)
		}
	}
	return signatures
}

// formatStandard formats signatures as a list that parseStandard can parse.
func formatStandard(signatures [][]byte) string {
	texts := make([]string, len(signatures))
	for i, signature := range signatures {
		texts[i] = standardVersion + base64.StdEncoding.EncodeToString(signature)
	}
	return strings.Join(texts, " ")
}
