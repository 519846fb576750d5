package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// valueTag is the beginning of a sealed input or value. It is followed by the length of the
// encryption key's id in one byte, the id, and the sealed bytes. Databases have sealed values, so
// this format must not change. The results of BoundInput, BoundStep, BoundSignal and BoundError
// must not change either.
const valueTag = "idem.sealed/1\n"

// SealValue returns the stored form of an input or a value. A sealed value is bound to its place in
// the database: it opens only with the same bound, so that it cannot replace another value.
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

// OpenValue returns the plain value from the result of SealValue.
func OpenValue(s Sealer, stored, bound []byte) ([]byte, error) {
	rest, isSealed := strings.CutPrefix(string(stored), valueTag)
	switch {
	case stored == nil, s == nil && !isSealed:
		return stored, nil
	case isSealed && (len(rest) == 0 || len(rest) < 1+int(rest[0])):
		return nil, errors.New("the stored value is truncated")
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

// SealerOf returns the id of the key with which a stored value is sealed, or "" if the value is
// plain. stored may be truncated after the id.
func SealerOf(stored []byte) string {
	rest, isSealed := strings.CutPrefix(string(stored), valueTag)
	if !isSealed || len(rest) == 0 {
		return ""
	}
	return rest[1:min(len(rest), 1+int(rest[0]))]
}

// BoundInput returns the data to which the sealed input of an operation is bound: see Sealer.
func BoundInput(operation string) []byte { return boundTo("idem.operation.input/1", operation) }

// BoundStep returns the data to which the sealed value of a step is bound: see Sealer.
func BoundStep(operation string, s *Step) []byte {
	return boundTo("idem.operation.step/1", operation, strconv.Itoa(s.Seq), string(s.Kind), s.Name, string(s.Outcome))
}

// BoundSignal returns the data to which the sealed value of a signal is bound: see Sealer.
func BoundSignal(operation, name string) []byte {
	return boundTo("idem.operation.signal/1", operation, name)
}

// BoundError returns the data to which the sealed text of the last error is bound. step is the step
// that has failed, or empty if the function has failed.
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
