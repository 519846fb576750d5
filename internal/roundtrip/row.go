package roundtrip

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Row reads the values of a row in order.
type Row struct {
	values [][]byte
	fields []pgconn.FieldDescription
	err    error
}

// take returns the next value and whether it is in binary format.
func (r *Row) take() (value []byte, isBinary bool) {
	if len(r.values) == 0 {
		r.Fail(errors.New("it has fewer columns than expected"))
		return nil, false
	}
	value, isBinary = r.values[0], r.fields[0].Format == Binary
	r.values, r.fields = r.values[1:], r.fields[1:]
	return value, isBinary
}

func (r *Row) Skip() { r.take() }

// Text reads the next value as a string. If the value equals one of expected, Text returns that
// string and allocates nothing.
func (r *Row) Text(expected ...string) string {
	value, _ := r.take()
	for _, s := range expected {
		if string(value) == s {
			return s
		}
	}
	return string(value)
}

// Bool reads the next value, a boolean in text format.
func (r *Row) Bool() bool {
	value, _ := r.take()
	return string(value) == "t"
}

// Int reads the next value, an integer in text format.
func (r *Row) Int() int {
	value, _ := r.take()
	n, err := strconv.Atoi(string(value))
	r.Fail(err)
	return n
}

// Int64 reads the next value, an integer in text format.
func (r *Row) Int64() int64 { return int64(r.Int()) }

// Bytes reads the next value, a bytea, and returns a copy of it, or nil for NULL.
func (r *Row) Bytes() []byte {
	value, isBinary := r.take()
	switch {
	case value == nil:
		return nil
	case isBinary:
		return append(make([]byte, 0, len(value)), value...)
	}
	decoded, err := decodeBytea(string(value))
	r.Fail(err)
	return decoded
}

// microsecondsTo2000 is the time from 1970-01-01 to 2000-01-01, the epoch of timestamps in binary
// format.
const microsecondsTo2000 = 946684800 * 1_000_000

// Time reads the next value, a timestamp in binary format or the bytea that timestamptz_send
// returns. It returns the zero time for NULL.
func (r *Row) Time() time.Time {
	value, isBinary := r.take()
	if value == nil {
		return time.Time{}
	}
	if !isBinary {
		decoded, err := decodeBytea(string(value))
		r.Fail(err)
		value = decoded
	}
	if len(value) != 8 {
		r.Fail(fmt.Errorf("a timestamp of %d bytes", len(value)))
		return time.Time{}
	}
	at := min(int64(binary.BigEndian.Uint64(value)), math.MaxInt64-microsecondsTo2000) // infinity becomes the maximum
	return time.UnixMicro(at + microsecondsTo2000).UTC()
}

// Fail makes err the error of the trip, unless err is nil or an error has occurred before. Call it
// if a value of the row is invalid.
func (r *Row) Fail(err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("idem: stored record: %w", err)
	}
}

// decodeBytea decodes both text forms of a bytea. They cannot be confused, because only the
// hexadecimal form begins with \x: the escape form doubles each backslash.
func decodeBytea(text string) ([]byte, error) {
	if digits, ok := strings.CutPrefix(text, `\x`); ok {
		return hex.DecodeString(digits)
	}
	decoded := make([]byte, 0, len(text))
	for len(text) > 0 {
		switch {
		case text[0] != '\\':
			decoded, text = append(decoded, text[0]), text[1:]
		case strings.HasPrefix(text, `\\`):
			decoded, text = append(decoded, '\\'), text[2:]
		default:
			if len(text) < 4 {
				return nil, errors.New("a bytea that ends inside an escape sequence")
			}
			b, err := strconv.ParseUint(text[1:4], 8, 8)
			if err != nil {
				return nil, errors.New("a bytea with an invalid escape sequence")
			}
			decoded, text = append(decoded, byte(b)), text[4:]
		}
	}
	return decoded, nil
}
