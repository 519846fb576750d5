package command

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/page"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/seal"
)

// sealKeys has the flag --seal-keys, which names the keys that decrypt sealed values.
type sealKeys struct {
	SealKeys string `name:"seal-keys" placeholder:"FILE" help:"File with keys of package seal: lines of ID=SECRET, the secret in base64. Default: the variable IDEM_SEAL_KEYS, with commas instead of lines."`
}

// secrets returns the secrets by key id. The map is empty if no keys were given. An error names an
// entry by its number and contains no part of a secret.
func (k sealKeys) secrets(s *session) (map[string][]byte, error) {
	text, from := s.Getenv("IDEM_SEAL_KEYS"), "IDEM_SEAL_KEYS"
	if k.SealKeys != "" {
		file, err := os.ReadFile(k.SealKeys)
		if err != nil {
			return nil, err
		}
		text, from = string(file), k.SealKeys
	}
	secrets := map[string][]byte{}
	for n, entry := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		id, encoded, ok := strings.Cut(entry, "=")
		secret, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil || len(secret) != seal.SecretSize {
			return nil, fmt.Errorf("%s: entry %d is not ID=SECRET, the secret being %d bytes in base64", from, n+1, seal.SecretSize)
		}
		secrets[id] = secret
	}
	return secrets, nil
}

// sealer returns a Sealer that opens values sealed with one of the keys, or nil if no keys were
// given.
func (k sealKeys) sealer(s *session) (idem.Sealer, error) {
	secrets, err := k.secrets(s)
	if err != nil || len(secrets) == 0 {
		return nil, err
	}
	// A Sealer needs a primary key, with which it encrypts. Callers of this method only decrypt, so
	// any of the keys will do.
	return seal.New(seal.Keys{Primary: slices.Sorted(maps.Keys(secrets))[0], Secrets: secrets}), nil
}

// sealerFor returns a Sealer for an object that is sealed with the key keyID, or nil if keyID is
// empty, because then the object is not sealed. It fails if the person did not give that key. The
// parameter what names the object in the error.
func (k sealKeys) sealerFor(s *session, what, keyID string) (*seal.Sealer, error) {
	if keyID == "" {
		return nil, nil
	}
	secrets, err := k.secrets(s)
	if err != nil {
		return nil, err
	}
	if secrets[keyID] == nil {
		return nil, fmt.Errorf("%s is sealed with the key %q: give it with --seal-keys or IDEM_SEAL_KEYS", what, page.Safe(keyID))
	}
	return seal.New(seal.Keys{Primary: keyID, Secrets: secrets}), nil
}

// notOpened returns err with the possible causes added, if an object could not be decrypted.
func notOpened(what, keyID string, err error) error {
	if errors.Is(err, seal.ErrTampered) {
		return fmt.Errorf("%s does not open with the key %q: it was changed or moved from another place, or the key id has another secret", what, page.Safe(keyID))
	}
	return err
}

// open decrypts the response of a record, if it is sealed. The encryption is bound to the columns
// of the record, so open builds the same db.Record as a call that replays the response.
func (k sealKeys) open(s *session, r *record.Record) error {
	if r.SealedBy == "" {
		return nil
	}
	sealer, err := k.sealerFor(s, "the response", r.SealedBy)
	if err != nil {
		return err
	}
	hash, err := hex.DecodeString(r.Hash)
	if err != nil {
		return err
	}
	status := 0
	if r.Status != nil {
		status = int(*r.Status)
	}
	key := db.NewKey(r.Scope, r.Key, [32]byte(append(hash, make([]byte, 32)...)), r.ExecutionID, 0)
	stored := db.Record{
		SameHash: true, ExecutionID: r.ExecutionID, State: db.State(r.State), Status: status, Body: r.Body, SealedBy: r.SealedBy, Closed: true,
	}
	if len(r.Header) > 0 {
		// A sealed record has its header inside the sealed body. A plain header can only have been
		// added later. Setting Header, even to an empty map, makes Open fail.
		stored.Header = map[string][]string{}
	}
	if err := notOpened("the response", r.SealedBy, stored.Open(&key, sealer)); err != nil {
		return err
	}
	r.Body = stored.Body
	r.Header, err = db.EncodeHeader(stored.Header)
	return err
}
