package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// secrets are the keys of one endpoint. There are two or more while a secret is being replaced.
type secrets [][]byte

// newSecrets decodes secrets. Its error does not contain the text of a secret.
func newSecrets(texts []string, decode func(string) ([]byte, error)) (secrets, error) {
	if len(texts) == 0 {
		return nil, errors.New("webhook: there is no secret")
	}
	keys := make(secrets, len(texts))
	for i, text := range texts {
		var err error
		switch {
		case text == "":
			err = errors.New("it is empty")
		case strings.TrimSpace(text) != text:
			err = errors.New("it begins or ends with white space")
		default:
			keys[i], err = decode(text)
		}
		if err != nil {
			return nil, fmt.Errorf("webhook: secret %d of %d: %w", i+1, len(texts), err)
		}
	}
	return keys, nil
}

// asBytes decodes a secret whose text is itself the key.
func asBytes(text string) ([]byte, error) { return []byte(text), nil }

// The minimum and maximum size of a key in Standard Webhooks, in bytes.
const minKey, maxKey = 24, 64

// fromBase64 decodes a secret of Standard Webhooks.
func fromBase64(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	switch {
	case err != nil:
		return nil, errors.New(`it is not "whsec_" and base64`)
	case len(key) < minKey, len(key) > maxKey:
		return nil, fmt.Errorf("it has %d bytes, but must have %d to %d", len(key), minKey, maxKey)
	}
	return key, nil
}

// sign returns a signature of content for each secret.
func (s secrets) sign(content ...[]byte) [][]byte {
	signatures := make([][]byte, len(s))
	for i, key := range s {
		mac := hmac.New(sha256.New, key)
		for _, part := range content {
			mac.Write(part)
		}
		signatures[i] = mac.Sum(nil)
	}
	return signatures
}

// maxSignatures bounds the work that a request can cause. Providers need few signatures: two while
// a secret is being replaced.
const maxSignatures = 32

// match reports whether one of the signatures belongs to one of the secrets. Its duration does not
// depend on which of them match.
func (s secrets) match(signatures [][]byte, content ...[]byte) bool {
	if len(signatures) > maxSignatures {
		return false
	}
	matches := 0
	for _, valid := range s.sign(content...) {
		for _, signature := range signatures {
			matches |= subtle.ConstantTimeCompare(valid, signature)
		}
	}
	return matches == 1
}
