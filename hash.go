package idem

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/idem-go/idem/internal/canon"
)

var (
	// ErrInvalidJSON says that HashJSON refuses the document: the mistake is the sender's. The error that wraps it gives the
	// reason and the byte offset, and never quotes the document.
	ErrInvalidJSON = canon.ErrDocument

	// ErrInvalidPointer says that HashJSON refuses what was given to Only or Without, whatever the document: the mistake is
	// the program's. The error that wraps it quotes the pointer.
	ErrInvalidPointer = canon.ErrPointer

	// ErrInvalidHash says that a call was given the zero Hash, which no request hashes to: as a rule, because the error of
	// HashJSON was ignored. All such requests would count as the same. Nothing was sent.
	ErrInvalidHash = errors.New("idem: invalid hash")
)

// What is hashed is frozen, because databases hold the hashes: another text needs another tag. No tag begins with another,
// so that HashBytes and HashJSON never hash the same text.
//
// HashBytes: the tag, then each part after its length (8 bytes, big-endian).
//
// HashJSON: the tag, then the canonical form (package canon) of an object that maps each selected pointer to its value,
// where "" points to the whole document.
const (
	bytesTag = "idem.HashBytes/1\n"
	jsonTag  = "idem.HashJSON/1\n"
)

// Hash is the fingerprint of what a request asks for. Under one key, the same hash means the same request, and another hash
// means a mistake. The zero Hash is that of no request, and no call accepts it: ErrInvalidHash.
type Hash [sha256.Size]byte

// checkHash refuses the zero Hash.
func checkHash(hash Hash) error {
	if hash == (Hash{}) {
		return fmt.Errorf("%w: it is zero; was the error of HashJSON ignored?", ErrInvalidHash)
	}
	return nil
}

// String returns h in lower-case hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// HashBytes hashes a list of byte strings. It matters where one part ends and the next begins: ("ab", "c") differs from
// ("a", "bc"), and no part from one empty part. No result is ever one of HashJSON. To hash a document together with
// something else, give its hash as a part: HashBytes([]byte(path), hash[:]).
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

// HashJSON hashes what a JSON document says, not how it is written. The order of members, white space between tokens,
// escapes in strings and the spelling of a number do not matter: 1, 1.0 and 10e-1 are one number, as are 0 and -0. All else
// does:
//
//   - Numbers are compared exactly, never as float64: 9007199254740993 differs from 9007199254740992.
//   - Strings and names are compared by code points, without Unicode normalization.
//   - null differs from a missing member, "1" from 1, and an array from the same elements in another order.
//
// Only and Without limit the hash to parts of the document.
//
// What two readers may understand differently has no hash. HashJSON refuses, with ErrInvalidJSON, a document that
//
//   - is not exactly one JSON value of RFC 8259, in valid UTF-8;
//   - has two members of one name in an object, or an unpaired surrogate;
//   - nests arrays and objects more than 256 deep;
//   - has a number whose exponent is beyond ±1e15 once it is written as an integer that does not end in 0;
//   - has nothing that Only selects.
//
// The parts that do not matter are checked as well. Time and memory grow with the length of the document, which is for the
// caller to limit.
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

// HashOption chooses what matters to HashJSON. It is fit to be kept and shared.
type HashOption struct {
	only, without []canon.Pointer
	err           error
}

// Only lets nothing matter but the values at these JSON pointers (RFC 6901), such as "/amount" or "/items/0/sku". The
// pointer "" is the whole document.
//
// The hash covers each pointer that is present, together with its value. So null differs from a missing member, the value
// of "/a" from a document that is the same, and a pointer that is added does not change the hash of a document that has
// nothing there. The order of pointers does not matter, nor does one that is given twice or is inside another. Several Only
// add up.
//
// HashJSON refuses a document in which none of the pointers is present, with ErrInvalidJSON, because all such documents
// would hash alike. It refuses Only without any pointer, with ErrInvalidPointer.
func Only(pointers ...string) HashOption {
	if len(pointers) == 0 {
		return HashOption{err: fmt.Errorf("%w: Only selects nothing", ErrInvalidPointer)}
	}
	only, err := canon.ParsePointers(pointers)
	return HashOption{only: only, err: err}
}

// Without lets the values at these JSON pointers (RFC 6901) not matter, such as a client's timestamp or trace id. The
// document hashes as if it did not contain them, hence the same as one that does not. Elements of an array have the index
// that they have in the document as given. Several Without add up.
//
// Without also takes its values out of what Only selects. HashJSON refuses, with ErrInvalidPointer, a Without that leaves
// nothing of the document or of a pointer of Only: the pointer "", the same pointer, or one around it.
func Without(pointers ...string) HashOption {
	without, err := canon.ParsePointers(pointers)
	return HashOption{without: without, err: err}
}

// selected returns what the options select together, or the first error among them.
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
