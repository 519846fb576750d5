package pgserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// verifier returns the SCRAM verifier of a password (RFC 5802) with 1 iteration instead of 4096.
// More iterations make guessing expensive, which does not matter for a random password. Under the
// race detector, 4096 iterations cost 5 ms for each new connection, which was most of the processor
// time of the tests.
func verifier(password string) string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	salted := sum([]byte(password), append(salt[:16:16], 0, 0, 0, 1))
	stored := sha256.Sum256(sum(salted, []byte("Client Key")))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", text(salt), text(stored[:]), text(sum(salted, []byte("Server Key"))))
}

func sum(key, message []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(message)
	return h.Sum(nil)
}
