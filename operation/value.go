package operation

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/db"
)

// Errors of names, ids and values.
var (
	// ErrUnknownOperation is the error for an id that no operation has.
	ErrUnknownOperation = errors.New("operation: no such operation")

	// ErrInvalidName is the error for an invalid name of an operation, a step or a signal. A valid
	// name has 1 to 200 bytes of UTF-8, no control characters and no "#".
	ErrInvalidName = errors.New("operation: invalid name")

	// ErrValueTooLarge is the error for an input, a signal or a value of a step that has more than
	// 1 MiB after encoding.
	ErrValueTooLarge = errors.New("operation: the value is too large")
)

const (
	maxValue = 1 << 20
	maxName  = 200
)

// Codec encodes inputs and values of steps for the database. Decode may also get the output of
// Encode from an older version of the program.
type Codec interface {
	Encode(value any) ([]byte, error)
	Decode(stored []byte, value any) error
}

type jsonCodec struct{}

func (jsonCodec) Encode(value any) ([]byte, error) { return json.Marshal(value) }

// Decode returns a json.Number for a number in a value of an interface type. A float64 would
// silently change numbers above 2^53.
func (jsonCodec) Decode(stored []byte, value any) error {
	d := json.NewDecoder(bytes.NewReader(stored))
	d.UseNumber()
	if err := d.Decode(value); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more data after the value")
	}
	return nil
}

// encode returns a value in its stored form, and as the function sees it after decoding. It fails
// if the stored form does not decode, so that such a value is never committed.
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

// checkName returns an error if a name is invalid. "#" is reserved for the suffix of a repeated
// name, such as "#2".
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty", ErrInvalidName)
	case len(name) > maxName:
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrInvalidName, len(name), maxName)
	case !utf8.ValidString(name), strings.ContainsRune(name, '#'), strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w %.40q: not valid UTF-8, or with a control character or a \"#\"", ErrInvalidName, name)
	}
	return nil
}

// seal returns a value in its stored form, encrypted if there is a Sealer. The stored value can
// only be opened with the same bound, which names its place in the database. A panic of the Sealer
// becomes an error.
func seal(s db.Sealer, plain, bound []byte) (stored []byte, err error) {
	defer recoverSealer(&err)
	stored, err = db.SealValue(s, plain, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSealing, err)
	}
	return stored, nil
}

var errSealing = errors.New("operation: the Sealer has failed")

// open returns the plain value from its stored form. bound must be the one that seal got. A panic
// of the Sealer becomes an error.
func open(s db.Sealer, stored, bound []byte) (plain []byte, err error) {
	defer recoverSealer(&err)
	plain, err = db.OpenValue(s, stored, bound)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", idem.ErrUnreadable, err)
	}
	return plain, nil
}

// recoverSealer turns a panic of a Sealer into an error. The text of the error has the panic value
// only if it is a runtime.Error, because any other value may be secret.
func recoverSealer(err *error) {
	switch value := recover().(type) {
	case nil:
	case runtime.Error:
		*err = fmt.Errorf("%w: it has panicked: %w", errSealing, value)
	default:
		*err = fmt.Errorf("%w: it has panicked with a %T", errSealing, value)
	}
}

// keyTag is the beginning of the text whose hash is the key of a call. It must never change,
// because other systems store such keys.
const keyTag = "idem.operation.key/1\n"

// keyLength is the number of characters of a derived key: 160 bits.
const keyLength = 32

// derivedKey returns the key under which a call is made in the other system. The key is the same in
// every attempt and in every process.
func derivedKey(operationID string, kind db.StepKind, name string) string {
	h := sha256.New()
	h.Write([]byte(keyTag))
	var length [8]byte
	for _, part := range []string{operationID, string(kind), name} {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return lower.EncodeToString(h.Sum(nil))[:keyLength]
}

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// childTag is the beginning of the text whose hash is the id of a child. It must never change,
// because a waiting parent computes the id of its child again.
const childTag = "idem.operation.child/1\n"

// ChildID returns the id of the operation that a Child step has begun. operationID is the id of the
// parent. step is the name of the Child step, as in a StepStatus.
func ChildID(operationID, step string) string {
	key := sha256.Sum256([]byte(childTag + operationID + "\n" + step))
	id := pgtype.UUID{Valid: true}
	copy(id.Bytes[:], key[:])
	id.Bytes[6] = id.Bytes[6]&0x0f | 0x80 // version 8
	id.Bytes[8] = id.Bytes[8]&0x3f | 0x80
	return id.String()
}

// parsedID returns an id in canonical form. It returns ErrUnknownOperation for an invalid id,
// because no operation has it.
func parsedID(id string) (string, error) {
	var parsed pgtype.UUID
	if parsed.Scan(id) != nil {
		return "", ErrUnknownOperation
	}
	return parsed.String(), nil
}
