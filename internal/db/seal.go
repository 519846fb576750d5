package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Sealer has the methods of idem.Sealer, which this package cannot use, because package idem
// imports package db. bound is additional authenticated data: Open fails unless it gets the same
// bound as Seal.
type Sealer interface {
	Seal(plain, bound []byte) (keyID string, sealed []byte, err error)
	Open(keyID string, sealed, bound []byte) ([]byte, error)
}

// sealTag is the beginning of the data to which a sealed response is bound. Databases have
// responses that were sealed with it, so the formats of bound and of joinResponse must not change.
// A new format needs a new tag.
const sealTag = "idem.response/1\n"

// bound returns the data to which a sealed response is bound, so that the response cannot be moved
// to another record. The data has the other fields of the record. It leaves out the times, because
// the server sets some of them after the response is sealed. The length of each field of variable
// length comes before the field.
func (k *Key) bound(executionID string, state State, status int) []byte {
	buf := make([]byte, 0, len(sealTag)+len(k.scope)+len(k.key)+len(k.hash)+len(executionID)+len(state)+6*8)
	buf = append(buf, sealTag...)
	add := func(length int) { buf = binary.BigEndian.AppendUint64(buf, uint64(length)) }
	for _, part := range []string{k.scope, k.key, string(k.hash[:]), executionID, string(state)} {
		add(len(part))
		buf = append(buf, part...)
	}
	return binary.BigEndian.AppendUint64(buf, uint64(status))
}

// Seal seals the response that c is about to store, unless the Sealer leaves it plain.
func (c *Complete) Seal(s Sealer) error {
	keyID, sealed, err := s.Seal(joinResponse(c.Header, c.Body), c.Key.bound(c.Key.ExecutionID, c.State, c.Status))
	switch {
	case err != nil:
		return err
	case keyID == "":
		return nil
	case len(keyID) > 255 || !utf8.ValidString(keyID) || strings.Contains(keyID, "\x00"):
		return errors.New("the Sealer's key id cannot be stored: it has up to 255 bytes of UTF-8, without NUL")
	}
	c.Header, c.Body, c.SealedBy = nil, sealed, keyID
	return nil
}

// Open decrypts the response of a loaded record. key is the key of the record. Open also passes a
// plain response to the Sealer, which may refuse it.
func (r *Record) Open(key *Key, s Sealer) error {
	switch {
	case !r.Closed:
		return nil
	case r.SealedBy == "" && r.HeaderErr != nil:
		return r.HeaderErr
	case s == nil && r.SealedBy != "":
		return fmt.Errorf("it is sealed with the key %.64q, and the call has no Sealer: give it WithSealer with that key", r.SealedBy)
	case s != nil:
		if err := r.open(s, key.bound(r.ExecutionID, r.State, r.Status)); err != nil {
			return err
		}
	}
	r.Closed = false
	return nil
}

func (r *Record) open(s Sealer, bound []byte) error {
	if r.SealedBy == "" {
		body, err := s.Open("", r.Body, bound)
		if err == nil && len(body) > 0 {
			r.Body = body
		}
		return err
	}
	// A sealed response contains its header. If there is also a header in the row, somebody has
	// added it later. The change of bound then makes the Sealer fail.
	if r.Header != nil || r.HeaderErr != nil {
		bound = append(bound, "header"...)
	}
	plain, err := s.Open(r.SealedBy, r.Body, bound)
	if err != nil {
		return err
	}
	header, body, err := splitResponse(plain)
	if err == nil {
		r.Header, err = decodeHeader(header)
	}
	r.Body = body
	return err
}

// joinResponse returns the length of the header (4 bytes, big-endian), the header and the body.
func joinResponse(header, body []byte) []byte {
	buf := make([]byte, 0, 4+len(header)+len(body))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(header)))
	return append(append(buf, header...), body...)
}

// splitResponse is the inverse of joinResponse. It returns an empty header or body as nil.
func splitResponse(joined []byte) (header, body []byte, err error) {
	if len(joined) < 4 {
		return nil, nil, errNotJoined
	}
	length, rest := binary.BigEndian.Uint32(joined), joined[4:]
	if uint64(length) > uint64(len(rest)) {
		return nil, nil, errNotJoined
	}
	header, body = rest[:length:length], rest[length:]
	if len(header) == 0 {
		header = nil
	}
	if len(body) == 0 {
		body = nil
	}
	return header, body, nil
}

var errNotJoined = errors.New("the opened response is not a header and a body")
