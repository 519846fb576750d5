package command

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/record"
	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/seal"
)

// sealKeys holds the flag for the keys of package seal.
type sealKeys struct {
	SealKeys string `name:"seal-keys" placeholder:"FILE" help:"Keys of package seal: lines of ID=SECRET, the secret in base64. Default: the variable IDEM_SEAL_KEYS, with commas instead of lines."`
}

// secrets returns the secrets by key ID, or nil if none are given. Errors show no part of a secret.
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

// sealer returns a Sealer that opens values sealed with one of the keys, or nil if there are no
// keys.
func (k sealKeys) sealer(s *session) (idem.Sealer, error) {
	secrets, err := k.secrets(s)
	if err != nil || len(secrets) == 0 {
		return nil, err
	}
	return seal.New(seal.Keys{Primary: anyOf(secrets), Secrets: secrets}), nil
}

// open decrypts the response of a record if it is sealed.
func (k sealKeys) open(s *session, r *record.Record) error {
	if r.SealedBy == "" {
		return nil
	}
	secrets, err := k.secrets(s)
	if err != nil {
		return err
	}
	if len(secrets) == 0 {
		return fmt.Errorf("the response is sealed with the key %q: give it with --seal-keys or IDEM_SEAL_KEYS", r.SealedBy)
	}
	status := 0
	if r.Status != nil {
		status = int(*r.Status)
	}
	key := db.NewKey(r.Scope, r.Key, [32]byte(append(r.Hash, make([]byte, 32)...)), r.ExecutionID, 0)
	stored := db.Record{
		SameHash: true, ExecutionID: r.ExecutionID, State: db.State(r.State), Status: status, Body: r.Body, SealedBy: r.SealedBy, Closed: true,
	}
	if len(r.Header) > 0 {
		stored.Header = map[string][]string{} // a sealed response has no header: this one is not from idem
	}
	err = stored.Open(&key, seal.New(seal.Keys{Primary: anyOf(secrets), Secrets: secrets}))
	switch {
	case errors.Is(err, seal.ErrUnknownKey):
		return fmt.Errorf("the response is sealed with the key %q, which is not among those given", r.SealedBy)
	case errors.Is(err, seal.ErrTampered):
		return fmt.Errorf("the response does not open with the key %q: it was changed, moved from another record, or that id has another secret", r.SealedBy)
	case err != nil:
		return err
	}
	r.Body = stored.Body
	r.Header, err = db.EncodeHeader(stored.Header)
	return err
}

// anyOf returns the ID of any key. seal.New requires a primary key, but nothing is sealed here.
func anyOf(secrets map[string][]byte) string {
	for id := range secrets {
		return id
	}
	return ""
}
