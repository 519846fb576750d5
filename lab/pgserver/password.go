package pgserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// verifier is what a server keeps of a password (RFC 5802), made with one iteration instead of 4096. Iterations slow down those who
// guess passwords, and a random one is not guessed; under the race detector they cost each new connection five milliseconds, which
// was most of what tests computed.
func verifier(password string) string {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // it does not fail
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
