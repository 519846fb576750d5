package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// valueTag begins an input or a value that is stored sealed: then come the length of the key's id in one byte, the id, and what
// the Sealer made. It is frozen, as is what a value is bound to.
const valueTag = "idem.sealed/1\n"

// SealValue returns an input or a value as it is stored. It is bound to its place, so that none can be put in the place of another.
func SealValue(s Sealer, plain, bound []byte) ([]byte, error) {
	if s == nil || plain == nil {
		return plain, nil
	}
	keyID, sealed, err := s.Seal(plain, bound)
	switch {
	case err != nil:
		return nil, fmt.Errorf("a value could not be sealed: %w", err)
	case keyID == "":
		return plain, nil
	case len(keyID) > 255:
		return nil, fmt.Errorf("the Sealer's key id has %d bytes, the limit is 255", len(keyID))
	}
	stored := append(append([]byte(valueTag), byte(len(keyID))), keyID...)
	return append(stored, sealed...), nil
}

// OpenValue returns the input or the value that was stored.
func OpenValue(s Sealer, stored, bound []byte) ([]byte, error) {
	rest, isSealed := strings.CutPrefix(string(stored), valueTag)
	switch {
	case stored == nil, s == nil && !isSealed:
		return stored, nil
	case isSealed && (len(rest) == 0 || len(rest) < 1+int(rest[0])):
		return nil, errors.New("what is stored is cut off")
	case s == nil:
		return nil, fmt.Errorf("it is sealed with the key %.64q, and there is no Sealer", SealerOf(stored))
	}
	keyID, text := "", stored
	if isSealed {
		keyID, text = rest[1:1+int(rest[0])], []byte(rest[1+int(rest[0]):])
	}
	plain, err := s.Open(keyID, text, bound)
	switch {
	case err != nil:
		return nil, err
	case keyID == "":
		return stored, nil
	case plain == nil:
		plain = []byte{}
	}
	return plain, nil
}

// SealerOf returns the id of the key that a stored value is sealed with, "" if it is plain. A beginning of the value is enough.
func SealerOf(stored []byte) string {
	rest, isSealed := strings.CutPrefix(string(stored), valueTag)
	if !isSealed || len(rest) == 0 {
		return ""
	}
	return rest[1:min(len(rest), 1+int(rest[0]))]
}

// What an input, the value of a step and that of a signal are bound to.

// BoundInput is what the input of an operation is bound to.
func BoundInput(operation string) []byte { return boundTo("idem.operation.input/1", operation) }

// BoundStep is what the value of a step is bound to.
func BoundStep(operation string, s *Step) []byte {
	return boundTo("idem.operation.step/1", operation, strconv.Itoa(s.Seq), string(s.Kind), s.Name, string(s.Outcome))
}

// BoundSignal is what the value of a signal is bound to.
func BoundSignal(operation, name string) []byte {
	return boundTo("idem.operation.signal/1", operation, name)
}

// BoundError is what the text of the last error is bound to.
func BoundError(operation, step string) []byte {
	return boundTo("idem.operation.error/1", operation, step)
}

func boundTo(parts ...string) []byte {
	var buf []byte
	for _, part := range parts {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	return buf
}
