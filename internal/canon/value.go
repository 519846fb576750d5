package canon

import "bytes"

// value reads a value. The pointers are those to it and to parts of it. It reports whether the value is to be dropped.
func (w *rewriter) value(pointers []Pointer) (drop bool, err error) {
	var here *Pointer
	if len(pointers) > 0 && len(pointers[0].tokens) == w.depth {
		here, pointers = &pointers[0], pointers[1:]
	}
	start := len(w.out)
	switch w.skipSpace(); w.peek() {
	case '{':
		err = w.object(pointers)
	case '[':
		err = w.array(pointers)
	case '"':
		err = w.string()
	case 't':
		err = w.literal("true")
	case 'f':
		err = w.literal("false")
	case 'n':
		err = w.literal("null")
	default:
		err = w.number()
	}
	if err != nil || here == nil {
		return false, err
	}
	if !here.drop {
		w.pick(here.text, w.out[start:])
	}
	return here.drop, nil
}

func (w *rewriter) literal(word string) error {
	if !bytes.HasPrefix(w.doc[w.pos:], []byte(word)) {
		return w.refuse(w.pos, "expected a value")
	}
	w.out = append(w.out, word...)
	w.pos += len(word)
	return nil
}

// pick adds a selected pointer and its value to what Append returns.
func (w *rewriter) pick(pointer string, value []byte) {
	m := member{start: len(w.dst)}
	w.dst = appendString(w.dst, pointer)
	m.nameEnd = len(w.dst)
	w.dst = append(append(w.dst, ':'), value...)
	m.end = len(w.dst)
	w.selected = append(w.selected, m)
}
