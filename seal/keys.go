package seal

import (
	"errors"
	"fmt"
	"strings"
)

// SecretSize is the size of a secret in bytes.
const SecretSize = 32

// maxID is the maximum length of a key ID, which is stored beside every response.
const maxID = 64

// Keys are secrets by ID. Each of them can decrypt. The secret with the ID Primary encrypts.
type Keys struct {
	Primary string

	// Secrets have SecretSize bytes each. They must come from a cryptographic random source, not
	// from a password. An ID has 1 to 64 ASCII characters without spaces, and must never be reused
	// for another secret.
	Secrets map[string][]byte
}

// maxShown is how many bytes of an ID an error shows. If the program has swapped IDs and secrets by
// mistake, the ID is a secret.
const maxShown = 12

// check returns an error if the keys are invalid. Of a secret, the error contains only the length.
func (k Keys) check() error {
	if len(k.Secrets) == 0 {
		return errors.New("seal: Keys.Secrets is empty")
	}
	for id, secret := range k.Secrets {
		switch {
		case !isID(id):
			return fmt.Errorf("seal: %.*q is not a key ID: it must have 1 to %d ASCII characters without spaces", maxShown, id, maxID)
		case len(secret) != SecretSize:
			return fmt.Errorf("seal: the secret of key %.*q has %d bytes; it must have %d", maxShown, id, len(secret), SecretSize)
		case strings.Trim(string(secret), "\x00") == "":
			return fmt.Errorf("seal: the secret of key %.*q has only zero bytes", maxShown, id)
		}
	}
	if _, ok := k.Secrets[k.Primary]; !ok {
		return fmt.Errorf("seal: Keys.Primary is %.*q, but Keys.Secrets has no such key", maxShown, k.Primary)
	}
	return nil
}

func isID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c >= 0x7f })
}
