// Package canon writes JSON documents in canonical form, so that all documents with the same
// content have the same text.
//
// In canonical form
//
//   - there is no white space;
//   - members of an object are sorted by the bytes of their names, without the quotes;
//   - in strings, \" and \\ stand for the quote and the backslash, \u00 and two lower-case hex
//     digits for U+0000 to U+001F; all other characters are unescaped UTF-8;
//   - a number is an integer that does not end in 0, followed by e and the exponent unless the
//     exponent is 0: 12, -15e-1, 1e3; the number zero is 0.
//
// This form must not change, because databases store hashes of it.
package canon

import (
	"errors"
)

// Package idem exports both errors, so their texts begin with "idem".
var (
	ErrDocument = errors.New("idem: invalid JSON document")
	ErrPointer  = errors.New("idem: invalid JSON pointer")
)

// Append appends a JSON object in canonical form to dst and returns the extended buffer. The object
// has a member for each pointer of the selection that is present in doc. The name of the member is
// the pointer, and its value is the value in doc. For the pointer "" that is the whole document.
//
// Append checks all of doc, including parts that are not selected. If two JSON parsers may
// understand doc differently, Append returns an error that wraps ErrDocument. The error contains
// the reason and the byte offset, and never quotes the document.
//
// Time and memory grow linearly with the length of doc, whatever its structure, because clients
// choose the structure.
func Append(dst, doc []byte, selection Selection) ([]byte, error) {
	w := rewriter{
		doc:     doc,
		out:     make([]byte, 0, 2*len(doc)),
		members: make([]member, 0, 16),
		dst:     append(dst, '{'),
	}
	if _, err := w.value(selection); err != nil {
		return nil, err
	}
	if w.skipSpace(); w.pos < len(doc) {
		return nil, w.refuse(w.pos, "data after the value")
	}
	if len(w.selected) == 0 {
		return nil, w.refuse(0, "nothing that Only selects")
	}
	dst, err := w.arrange(w.dst, w.selected)
	return append(dst, '}'), err
}
