package seal

import (
	"errors"
	"fmt"
	"strings"
)

// SecretSize is how many bytes a secret has.
const SecretSize = 32

// maxID is how many bytes the id of a key may have: it is stored beside every response.
const maxID = 64

// Keys are the secrets to open with, by their ids, and the id of the one to seal with.
type Keys struct {
	Primary string

	// Secrets have SecretSize bytes each, from a cryptographic random source and not from a password. An id has 1 to 64
	// characters of ASCII, without spaces, and is never given to another secret.
	Secrets map[string][]byte
}

// maxShown is how many bytes of an id an error about the keys shows: who has mixed up ids and secrets has a secret there.
const maxShown = 12

// check returns what is wrong with the keys. It says nothing of a secret but its length.
func (k Keys) check() error {
	if len(k.Secrets) == 0 {
		return errors.New("seal: there are no Secrets")
	}
	for id, secret := range k.Secrets {
		switch {
		case !isID(id):
			return fmt.Errorf("seal: %.*q is not an id: 1 to %d characters of ASCII, without spaces", maxShown, id, maxID)
		case len(secret) != SecretSize:
			return fmt.Errorf("seal: the secret of %.*q has %d bytes, not %d", maxShown, id, len(secret), SecretSize)
		case strings.Trim(string(secret), "\x00") == "":
			return fmt.Errorf("seal: the secret of %.*q is nothing but zeros", maxShown, id)
		}
	}
	if _, ok := k.Secrets[k.Primary]; !ok {
		return fmt.Errorf("seal: Primary is %.*q, and there is no such secret", maxShown, k.Primary)
	}
	return nil
}

func isID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c >= 0x7f })
}
