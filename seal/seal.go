package seal

import (
	"errors"
	"fmt"
)

// Sealer seals with one key and opens with several. It is an idem.Sealer, safe for concurrent use, and asks no server: a
// program that has its secrets from a key service asks that when it starts.
type Sealer struct {
	primary     string
	keys        map[string]*key
	acceptPlain bool
	writePlain  bool
	err         error
}

// Option changes what a Sealer does with what is not sealed.
type Option func(*Sealer)

// AcceptPlain lets what was not sealed pass: for as long as there are records from before the sealing. What it gives up is
// that a response which was put in the place of a sealed one is noticed.
func AcceptPlain() Option { return func(s *Sealer) { s.acceptPlain = true } }

// WritePlain leaves everything plain, and lets what is plain pass, as AcceptPlain does, but opens what is sealed: for the
// first step of a roll-out, in which all processes learn to open before one of them seals.
func WritePlain() Option { return func(s *Sealer) { s.acceptPlain, s.writePlain = true, true } }

// New returns a Sealer for the keys. By default it refuses what is not sealed. If something is wrong with the keys, the Sealer
// does nothing but say so: Check does, and every call that it is given to, before it does anything else.
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

// Check returns what is wrong with the keys, nil if nothing is. idem.CheckOptions asks for it.
func (s *Sealer) Check() error {
	if s == nil {
		return errors.New("seal: the Sealer is nil")
	}
	return s.err
}

// Seal encrypts plain with the primary key, bound to bound: it opens again beside the same bytes only. Under WritePlain it
// returns plain as it is, and no key.
func (s *Sealer) Seal(plain, bound []byte) (keyID string, sealed []byte, err error) {
	switch err := s.Check(); {
	case err != nil:
		return "", nil, err
	case s.writePlain:
		return "", plain, nil
	}
	return s.primary, s.keys[s.primary].seal(plain, bound), nil
}

// Open returns what was sealed, or an error that is ErrUnknownKey, ErrTampered or ErrPlain. Without a key id it is asked
// whether what was not sealed may pass, and returns it as it is.
func (s *Sealer) Open(keyID string, sealed, bound []byte) ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if keyID == "" {
		return s.pass(sealed, bound)
	}
	key, ok := s.keys[keyID]
	if !ok {
		return nil, fmt.Errorf("%w: %.*q", ErrUnknownKey, maxID, keyID)
	}
	plain, ok := key.open(sealed, bound)
	if !ok {
		return nil, fmt.Errorf("%w, by the key %q", ErrTampered, keyID)
	}
	return plain, nil
}

// pass lets plain bytes pass, unless they are sealed ones from which the mark was taken: those would be handed out as they
// are.
func (s *Sealer) pass(plain, bound []byte) ([]byte, error) {
	if !s.acceptPlain {
		return nil, ErrPlain
	}
	for id, key := range s.keys {
		if _, ok := key.open(plain, bound); ok {
			return nil, fmt.Errorf("%w: the mark that it was sealed by the key %q is gone", ErrTampered, id)
		}
	}
	return plain, nil
}
