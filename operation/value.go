package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxValue = 1 << 20
	maxName  = 200
)

// Codec says how inputs and values of steps are stored. Decode is given what Encode has returned, maybe by an older program.
type Codec interface {
	Encode(value any) ([]byte, error)
	Decode(stored []byte, value any) error
}

type jsonCodec struct{}

func (jsonCodec) Encode(value any) ([]byte, error) { return json.Marshal(value) }

// Decode decodes a number that goes into an interface into a json.Number. A float64 would change what is above 2^53 without a word.
func (jsonCodec) Decode(stored []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(stored))
	d.UseNumber()
	if err := d.Decode(value); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more behind the value")
	}
	return nil
}

// encode returns a value as it is stored, having made sure that it can be read again: what cannot be replayed must not be
// committed.
func encode[T any](codec Codec, value T) (stored []byte, shown T, err error) {
	if stored, err = codec.Encode(value); err != nil {
		return nil, shown, fmt.Errorf("operation: a value of type %T cannot be encoded: %w", value, err)
	}
	if len(stored) > maxValue {
		return nil, shown, fmt.Errorf("%w: %d bytes, limit %d", ErrValueTooLarge, len(stored), maxValue)
	}
	if stored == nil {
		stored = []byte{}
	}
	shown, err = decode[T](codec, stored)
	return stored, shown, err
}

func decode[T any](codec Codec, stored []byte) (value T, err error) {
	if err = codec.Decode(stored, &value); err != nil {
		var none T
		return none, fmt.Errorf("operation: a stored value does not decode into %T: %w", value, err)
	}
	return value, nil
}

// checkName holds a name to its rules. "#" tells the second use of a name from the first.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(name) > maxName:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrInvalidName, len(name), maxName)
	case !utf8.ValidString(name), strings.ContainsRune(name, '#'), strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: it is not valid UTF-8, or has a control character or a \"#\"", ErrInvalidName)
	}
	return nil
}
