package canon

import "fmt"

const maxDepth = 256 // limits how often a byte is copied: each object around the byte copies it, see arrange

// rewriter reads a document once and writes its canonical form.
type rewriter struct {
	doc     []byte
	pos     int
	depth   int // the number of open arrays and objects
	out     []byte
	members []member // the members of all open objects; the members of the innermost object are last

	dst      []byte // the result of Append: a member for each selected pointer
	selected []member
}

// enter reads the bracket that opens an array or an object.
func (w *rewriter) enter() error {
	if w.depth == maxDepth {
		return w.refuse(w.pos, "nested too deep")
	}
	w.out = append(w.out, w.doc[w.pos])
	w.pos++
	w.depth++
	return nil
}

// leave writes the bracket that closes an array or an object.
func (w *rewriter) leave(bracket byte) {
	w.out = append(w.out, bracket)
	w.depth--
}

func (w *rewriter) skipSpace() {
	for b := w.peek(); b == ' ' || b == '\t' || b == '\n' || b == '\r'; b = w.peek() {
		w.pos++
	}
}

// peek returns the next byte. At the end of the document it returns 0, which no JSON token
// contains.
func (w *rewriter) peek() byte {
	if w.pos == len(w.doc) {
		return 0
	}
	return w.doc[w.pos]
}

// accept reads the next byte if it equals b, and reports whether it has read it.
func (w *rewriter) accept(b byte) bool {
	if w.peek() != b {
		return false
	}
	w.pos++
	return true
}

func (w *rewriter) refuse(offset int, reason string) error {
	if offset == len(w.doc) {
		reason = "unexpected end"
	}
	return fmt.Errorf("%w: %s at byte %d", ErrDocument, reason, offset)
}
