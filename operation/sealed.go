package operation

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
)

// sealedTag begins what is stored sealed: then come the length of the key's id in one byte, the id, and what the Sealer made.
// It is frozen, as is what a value is bound to.
const sealedTag = "idem.sealed/1\n"

// seal returns a value as it is stored. It is bound to its place, so that none can be put in the place of another.
func seal(s store.Sealer, plain []byte, bound ...string) ([]byte, error) {
	if s == nil || plain == nil {
		return plain, nil
	}
	keyID, sealed, err := s.Seal(plain, boundTo(bound))
	switch {
	case err != nil:
		return nil, fmt.Errorf("operation: a value could not be sealed: %w", err)
	case keyID == "":
		return plain, nil
	case len(keyID) > 255:
		return nil, fmt.Errorf("operation: the Sealer's key id has %d bytes, the limit is 255", len(keyID))
	}
	stored := append(append([]byte(sealedTag), byte(len(keyID))), keyID...)
	return append(stored, sealed...), nil
}

// open returns the value that was stored.
func open(s store.Sealer, stored []byte, bound ...string) ([]byte, error) {
	rest, isSealed := bytes.CutPrefix(stored, []byte(sealedTag))
	switch {
	case stored == nil, s == nil && !isSealed:
		return stored, nil
	case isSealed && (len(rest) == 0 || len(rest) < 1+int(rest[0])):
		return nil, fmt.Errorf("%w: what is stored is cut off", idem.ErrUnreadable)
	case s == nil:
		return nil, fmt.Errorf("%w: it is sealed with the key %.64q, and there is no Sealer", idem.ErrUnreadable, rest[1:1+int(rest[0])])
	}
	keyID, text := "", stored
	if isSealed {
		keyID, text = string(rest[1:1+int(rest[0])]), rest[1+int(rest[0]):]
	}
	plain, err := s.Open(keyID, text, boundTo(bound))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", idem.ErrUnreadable, err)
	case keyID == "":
		return stored, nil
	case plain == nil:
		plain = []byte{}
	}
	return plain, nil
}

func boundTo(parts []string) []byte {
	var buf []byte
	for _, part := range parts {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	return buf
}

// What an input and the value of a step are bound to.

func boundInput(operation string) []string { return []string{"idem.operation.input/1", operation} }

func boundStep(operation string, s *store.Step) []string {
	return []string{"idem.operation.step/1", operation, fmt.Sprint(s.Seq), string(s.Kind), s.Name, string(s.Outcome)}
}
