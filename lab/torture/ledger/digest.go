package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/idem-go/idem"
)

// Digest returns a digest of the status, the header and the body of a response.
func Digest(r idem.Response) string {
	if len(r.Header) == 0 {
		r.Header = nil
	}
	if len(r.Body) == 0 {
		r.Body = nil
	}
	encoded, err := json.Marshal(r) // sorts the header and encodes the body as base64
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:8])
}
