// Package canon writes JSON documents in canonical form: one text for everything that says the same.
//
// Canonical is:
//
//   - no white space;
//   - members in the order of the bytes between the quotes of their names;
//   - strings with \" and \\, with \u00 and two lower-case hex digits for U+0000 to U+001F, and with all else as it is in
//     UTF-8;
//   - numbers as an integer that does not end in 0, followed by e and the exponent unless that is 0: 12, -15e-1, 1e3; and
//     zero as 0.
//
// Databases hold hashes of this form, so it is frozen.
package canon

import (
	"errors"
)

// Package idem exports both errors, so their texts name it.
var (
	ErrDocument = errors.New("idem: invalid JSON document")
	ErrPointer  = errors.New("idem: invalid JSON pointer")
)

// Append appends to dst the canonical form of an object that maps each pointer of the selection that is present in doc to
// its value, and returns the extended buffer. The pointer "" has the whole document as its value.
//
// All of doc is checked, also what is not selected. What two readers may understand differently is refused with an error
// that wraps ErrDocument. The error gives the reason and the byte offset, and never quotes the document.
//
// Time and memory grow with the length of doc, and not faster: strangers choose its shape.
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
