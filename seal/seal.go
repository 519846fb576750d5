package seal

import (
	"errors"
	"fmt"
)

// Sealer encrypts with one key and decrypts with several keys. It implements idem.Sealer and is
// safe for concurrent use. It calls no server. If the secrets are in a key service, the program
// must read them when it starts.
type Sealer struct {
	primary     string
	keys        map[string]*key
	acceptPlain bool
	writePlain  bool
	err         error
}

// Option changes how a Sealer treats unencrypted data.
type Option func(*Sealer)

// AcceptPlain makes Open accept bytes that were not sealed. Use it while there are records from
// before sealing was introduced. With AcceptPlain, the Sealer cannot detect that a sealed
// response was replaced by an unsealed response.
func AcceptPlain() Option { return func(s *Sealer) { s.acceptPlain = true } }

// WritePlain makes Seal encrypt nothing, and makes Open accept bytes that were not sealed, as
// AcceptPlain does. Open still decrypts sealed bytes. Use WritePlain in the first step of a
// rollout, so that all processes can open responses before the first process seals.
func WritePlain() Option { return func(s *Sealer) { s.acceptPlain, s.writePlain = true, true } }

// New returns a Sealer for the keys. By default it rejects bytes that are not sealed. If the keys
// are invalid, every method of the Sealer returns an error. A call of package idem with such a
// Sealer fails before it does anything.
func New(keys Keys, options ...Option) *Sealer {
	s := &Sealer{primary: keys.Primary, keys: map[string]*key{}, err: keys.check()}
	for _, option := range options {
		if option == nil {
			s.err = errors.New("seal: nil Option")
			continue
		}
		option(s)
	}
	if s.err != nil {
		return s
	}
	for id, secret := range keys.Secrets {
		s.keys[id] = newKey(secret)
	}
	return s
}

// Check returns an error if the keys are invalid. idem.CheckOptions calls it.
func (s *Sealer) Check() error {
	if s == nil {
		return errors.New("seal: the Sealer is nil")
	}
	return s.err
}

// Seal encrypts plain with the primary key. Open can decrypt the result only with the same bound.
// With the option WritePlain, Seal returns plain itself and an empty key ID.
func (s *Sealer) Seal(plain, bound []byte) (keyID string, sealed []byte, err error) {
	switch err := s.Check(); {
	case err != nil:
		return "", nil, err
	case s.writePlain:
		return "", plain, nil
	}
	return s.primary, s.keys[s.primary].seal(plain, bound), nil
}

// Open decrypts sealed. Its errors are ErrUnknownKey, ErrTampered and ErrPlain. If keyID is empty,
// the bytes count as not sealed. Open then returns them if AcceptPlain or WritePlain was given.
func (s *Sealer) Open(keyID string, sealed, bound []byte) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if keyID == "" {
		return s.openPlain(sealed, bound)
	}
	key, ok := s.keys[keyID]
	if !ok {
		return nil, fmt.Errorf("%w %.*q; add its secret to Keys.Secrets", ErrUnknownKey, maxID, keyID)
	}
	plain, ok := key.open(sealed, bound)
	if !ok {
		return nil, fmt.Errorf("%w (key %q)", ErrTampered, keyID)
	}
	return plain, nil
}

// openPlain returns plain if the options allow it. If plain is sealed after all, and only its key
// ID was removed, openPlain returns an error, so that ciphertext is never returned as an answer.
func (s *Sealer) openPlain(plain, bound []byte) ([]byte, error) {
	if !s.acceptPlain {
		return nil, ErrPlain
	}
	for id, key := range s.keys {
		if _, ok := key.open(plain, bound); ok {
			return nil, fmt.Errorf("%w: the bytes are sealed with key %q, but have no key ID", ErrTampered, id)
		}
	}
	return plain, nil
}
