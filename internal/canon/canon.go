// Package canon writes JSON documents in canonical form: all documents with the same content have
// the same text.
//
// In canonical form
//
//   - there is no white space;
//   - members are in the order of the bytes between the quotes of their names;
//   - strings have \" and \\, \u00 and two lower-case hex digits for U+0000 to U+001F, and all else
//     as it is in UTF-8;
//   - numbers are an integer that does not end in 0, followed by e and the exponent unless that is
//     0: 12, -15e-1, 1e3; zero is 0.
//
// Databases hold hashes of this form, so it is frozen.
package canon

import (
	"errors"
)

// Package idem exports both errors, so their texts begin with its name.
var (
	ErrDocument = errors.New("idem: invalid JSON document")
	ErrPointer  = errors.New("idem: invalid JSON pointer")
)

// Append appends the canonical form of an object to dst and returns the extended buffer. The object
// maps each pointer of the selection that is present in doc to its value. The value of the pointer
// "" is the whole document.
//
// Append checks all of doc, including parts that are not selected. It refuses what two readers may
// understand differently with an error that wraps ErrDocument. The error has the reason and the
// byte offset, and never quotes the document.
//
// Time and memory grow linearly with the length of doc, because clients choose its shape.
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
