package seal

import (
	"errors"
	"fmt"
)

// Sealer seals with one key and opens with several. It implements idem.Sealer and is safe for
// concurrent use. It calls no server: a program that keeps its secrets in a key service reads them
// when it starts.
type Sealer struct {
	primary     string
	keys        map[string]*key
	acceptPlain bool
	writePlain  bool
	err         error
}

// Option changes how a Sealer treats bytes that are not sealed.
type Option func(*Sealer)

// AcceptPlain makes Open accept bytes that were not sealed. Use it while there are records from
// before sealing was introduced. With it, a plain response that has replaced a sealed one is not
// detected.
func AcceptPlain() Option { return func(s *Sealer) { s.acceptPlain = true } }

// WritePlain makes Seal leave everything plain, and Open accept plain bytes as AcceptPlain does.
// Sealed bytes are still opened. It is the first step of a rollout: all processes can open before
// one of them seals.
func WritePlain() Option { return func(s *Sealer) { s.acceptPlain, s.writePlain = true, true } }

// New returns a Sealer for the keys. By default it rejects bytes that are not sealed. If the keys
// are invalid, every method returns an error. Every call that gets such a Sealer fails before it
// does anything.
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

// Seal encrypts plain with the primary key. The result opens only together with the same bound.
// Under WritePlain, Seal returns plain itself and an empty key ID.
func (s *Sealer) Seal(plain, bound []byte) (keyID string, sealed []byte, err error) {
	switch err := s.Check(); {
	case err != nil:
		return "", nil, err
	case s.writePlain:
		return "", plain, nil
	}
	return s.primary, s.keys[s.primary].seal(plain, bound), nil
}

// Open decrypts sealed. Its errors are ErrUnknownKey, ErrTampered and ErrPlain. With an empty key
// ID the bytes count as plain, and Open returns them if that is allowed.
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

// openPlain returns plain bytes if AcceptPlain allows it. It rejects sealed bytes whose key ID was
// removed, so that ciphertext is not returned as an answer.
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
