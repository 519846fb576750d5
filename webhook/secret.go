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

// secrets are the keys of one endpoint. While a secret is being replaced there are several.
type secrets [][]byte

// newSecrets reads secrets as they are written. An error tells nothing of them.
func newSecrets(texts []string, decode func(string) ([]byte, error)) (secrets, error) {
	if len(texts) == 0 {
		return nil, errors.New("webhook: there is no secret")
	}
	read := make(secrets, len(texts))
	for i, text := range texts {
		key, err := []byte(nil), error(nil)
		switch {
		case text == "":
			err = errors.New("it is empty")
		case strings.TrimSpace(text) != text:
			err = errors.New("there is space around it")
		default:
			key, err = decode(text)
		}
		if err != nil {
			return nil, fmt.Errorf("webhook: secret %d of %d: %w", i+1, len(texts), err)
		}
		read[i] = key
	}
	return read, nil
}

// asWritten is for schemes whose key is the secret as it is written.
func asWritten(text string) ([]byte, error) { return []byte(text), nil }

// What Standard Webhooks says of the size of a key.
const minKey, maxKey = 24, 64

// fromBase64 reads a secret of Standard Webhooks.
func fromBase64(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	switch {
	case err != nil:
		return nil, errors.New(`it is not "whsec_" and base64`)
	case len(key) < minKey, len(key) > maxKey:
		return nil, fmt.Errorf("it has %d bytes, and should have %d to %d", len(key), minKey, maxKey)
	}
	return key, nil
}

// sign returns a signature of the content by each of the secrets.
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

// maxSignatures bounds the work that a request can ask for. Who changes a secret sends two.
const maxSignatures = 32

// match reports whether one of the signatures is by one of the secrets. It takes as long whichever it is.
func (s secrets) match(signatures [][]byte, content ...[]byte) bool {
	if len(signatures) > maxSignatures {
		return false
	}
	matches := 0
	for _, good := range s.sign(content...) {
		for _, signature := range signatures {
			matches |= subtle.ConstantTimeCompare(good, signature)
		}
	}
	return matches == 1
}
