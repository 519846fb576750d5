package idem

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/idem-go/idem/internal/canon"
)

const (
	maxKey   = 255
	maxScope = 512
)

// escapePart escapes the percent sign, too: otherwise the part "a%2Fb" would look like "a/b".
var escapePart = strings.NewReplacer("/", "%2F", "%", "%25")

// Scope joins parts, such as a tenant and an operation, into a scope for Do. For example,
// Scope("tenant-1", "POST /orders") is "tenant-1/POST %2Forders".
//
// Scope puts a "/" between parts. Inside a part, "/" becomes "%2F" and "%" becomes "%25". All other
// characters stay as they are. Two lists of parts never give the same scope, with one exception: an
// empty list and a list with one empty part both give "". Do refuses an empty scope with
// ErrInvalidScope. Do also refuses a scope that is longer than 512 bytes, or that has control
// characters or invalid UTF-8. Scope does not check its parts.
func Scope(parts ...string) string {
	var scope strings.Builder
	for i, part := range parts {
		if i > 0 {
			scope.WriteByte('/')
		}
		escapePart.WriteString(&scope, part)
	}
	return scope.String()
}

// checkName returns an error that wraps kind if name, a key or a scope, is invalid. The check comes
// before any SQL. Postgres would store some invalid names, and would abort the transaction because
// of others. The error does not quote the name.
func checkName(name string, limit int, kind error) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", kind)
	case len(name) > limit:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", kind, len(name), limit)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: it is not valid UTF-8", kind)
	}
	if i := strings.IndexFunc(name, unicode.IsControl); i >= 0 {
		return fmt.Errorf("%w: it has a control character at byte %d", kind, i)
	}
	return nil
}

func checkNames(scope, key string) error {
	return errors.Join(checkName(scope, maxScope, ErrInvalidScope), checkName(key, maxKey, ErrInvalidKey))
}

// newExecutionID returns a random UUID. This process generates the id, so that the call knows its
// id even if the server never answers.
func newExecutionID() string {
	id := pgtype.UUID{Valid: true}
	rand.Read(id.Bytes[:]) // never fails
	id.Bytes[6] = id.Bytes[6]&0x0f | 0x40
	id.Bytes[8] = id.Bytes[8]&0x3f | 0x80
	return id.String()
}

// The format of the hashed text must not change, because databases store the hashes. A new format
// needs a new tag. No tag is a prefix of another tag, so HashBytes and HashJSON never hash the same
// text.
//
// HashBytes hashes the tag, then each part after its length (8 bytes, big-endian).
//
// HashJSON hashes the tag, then the canonical form (package canon) of an object that maps each
// selected pointer to its value. The pointer "" stands for the whole document.
const (
	bytesTag = "idem.HashBytes/1\n"
	jsonTag  = "idem.HashJSON/1\n"
)

// Hash is the fingerprint of a request. Two calls with the same key and the same hash are the same
// request. A call with another hash returns ErrMismatch, and a call with the zero Hash returns
// ErrInvalidHash.
type Hash [sha256.Size]byte

func checkHash(hash Hash) error {
	if hash == (Hash{}) {
		return fmt.Errorf("%w: it is zero; was the error of HashJSON ignored?", ErrInvalidHash)
	}
	return nil
}

// String returns h in lower-case hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// HashBytes hashes a list of byte strings. The boundaries between parts matter: ("ab", "c") differs
// from ("a", "bc"), and an empty list differs from a list with one empty part. HashBytes and
// HashJSON never return the same hash. To hash a document together with other data, pass its hash
// as a part: HashBytes([]byte(path), hash[:]).
func HashBytes(parts ...[]byte) Hash {
	h := sha256.New()
	h.Write([]byte(bytesTag))
	var length [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return Hash(h.Sum(nil))
}

// HashJSON hashes the content of a JSON document, not its formatting. The order of members, white
// space between tokens, escapes in strings and the spelling of a number do not change the hash: 1,
// 1.0 and 10e-1 are the same number, and so are 0 and -0. All other differences between two
// documents change the hash:
//
//   - Numbers are compared exactly, never as float64: 9007199254740993 differs from
//     9007199254740992.
//   - Strings and names are compared by code points, without Unicode normalization.
//   - null differs from a missing member, "1" from 1, and an array from the same elements in
//     another order.
//
// Only and Without limit the hash to parts of the document.
//
// HashJSON refuses documents that two JSON parsers may understand differently. It returns
// ErrInvalidJSON for a document that
//
//   - is not exactly one JSON value of RFC 8259, in valid UTF-8;
//   - has an object with two members of the same name, or an unpaired surrogate;
//   - nests arrays and objects more than 256 deep;
//   - has a number whose exponent is beyond ±1e15 when the number is written as an integer that
//     does not end in 0, followed by an exponent;
//   - has no value at any pointer that Only selects.
//
// Names that differ only in case are different names to HashJSON. But encoding/json decodes them
// into the same field of a struct, and the last value counts. A program that decodes a document
// into a struct, and hashes it with Only, should refuse documents with such names.
//
// HashJSON also checks the parts of the document that it does not hash. Time and memory grow with
// the length of the document, which the caller has to limit.
func HashJSON(doc []byte, opts ...HashOption) (Hash, error) {
	selection, err := selected(opts)
	if err != nil {
		return Hash{}, err
	}
	text := append(make([]byte, 0, len(doc)+64), jsonTag...)
	if text, err = canon.Append(text, doc, selection); err != nil {
		return Hash{}, err
	}
	return sha256.Sum256(text), nil
}

// HashOption selects the parts of a document that HashJSON hashes. It may be used for many calls.
type HashOption struct {
	only, without []canon.Pointer
	err           error
}

// Only selects the values at these JSON pointers (RFC 6901), such as "/amount" or "/items/0/sku".
// HashJSON then hashes nothing else. The pointer "" is the whole document.
//
// The hash covers each pointer that is present, together with its value. So null differs from a
// missing member, and Only("/a") hashes {"a":1} differently from the whole document 1. An
// additional pointer does not change the hash of a document that has no value at that pointer. The
// order of pointers does not matter. A pointer changes nothing if it repeats another pointer or
// points into the value of another pointer. Several Only options add up.
//
// HashJSON returns ErrInvalidJSON for a document in which none of the pointers is present, because
// all such documents would have the same hash. It returns ErrInvalidPointer for Only without a
// pointer.
func Only(pointers ...string) HashOption {
	if len(pointers) == 0 {
		return HashOption{err: fmt.Errorf("%w: Only selects nothing", ErrInvalidPointer)}
	}
	only, err := canon.ParsePointers(pointers)
	return HashOption{only: only, err: err}
}

// Without excludes the values at these JSON pointers (RFC 6901), such as a client's timestamp or
// trace id. The document hashes as if it did not contain them. Removing an element of an array does
// not change the index of the others. Several Without options add up.
//
// Without also excludes values from what Only selects. HashJSON returns ErrInvalidPointer if
// Without excludes the whole document, by the pointer "", or the whole value at a pointer of Only.
func Without(pointers ...string) HashOption {
	without, err := canon.ParsePointers(pointers)
	return HashOption{without: without, err: err}
}

// selected returns the selection of all options together, or the first error among them.
func selected(opts []HashOption) (canon.Selection, error) {
	var only, without []canon.Pointer
	for _, o := range opts {
		if o.err != nil {
			return nil, o.err
		}
		only = append(only, o.only...)
		without = append(without, o.without...)
	}
	return canon.Select(only, without)
}
