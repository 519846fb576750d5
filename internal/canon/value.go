package canon

import (
	"bytes"
	"slices"
	"strconv"
)

// value reads a value and appends it to w.out. pointers are the pointers to the value and to its
// parts. drop reports whether the caller must remove the value again.
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

// pick adds a member to the result of Append: a selected pointer and its value.
func (w *rewriter) pick(pointer string, value []byte) {
	m := member{start: len(w.dst)}
	w.dst = appendString(w.dst, pointer)
	m.nameEnd = len(w.dst)
	w.dst = append(append(w.dst, ':'), value...)
	m.end = len(w.dst)
	w.selected = append(w.selected, m)
}

// member is the position of an object's member in the canonical text.
type member struct {
	start, nameEnd, end int
	offset              int // the offset of the name in the document
	drop                bool
}

func (w *rewriter) object(pointers []Pointer) error {
	if err := w.enter(); err != nil {
		return err
	}
	first := len(w.members)
	for w.skipSpace(); !w.accept('}'); w.skipSpace() {
		if len(w.members) > first && !w.accept(',') {
			return w.refuse(w.pos, "expected ',' or '}'")
		}
		if err := w.member(pointers); err != nil {
			return err
		}
	}
	var err error
	w.out, err = w.arrange(w.out, w.members[first:])
	w.members = w.members[:first]
	w.leave('}')
	return err
}

func (w *rewriter) member(pointers []Pointer) (err error) {
	w.skipSpace()
	m := member{start: len(w.out), offset: w.pos}
	if w.peek() != '"' {
		return w.refuse(w.pos, "expected a name")
	}
	if err := w.string(); err != nil {
		return err
	}
	m.nameEnd = len(w.out)
	if w.skipSpace(); !w.accept(':') {
		return w.refuse(w.pos, "expected ':'")
	}
	w.out = append(w.out, ':')
	m.drop, err = w.value(below(pointers, w.depth-1, w.out[m.start:m.nameEnd]))
	m.end = len(w.out)
	w.members = append(w.members, m)
	return err
}

// arrange sorts the members, which are the last part of text. It removes the members with drop and
// puts commas between the others.
func (w *rewriter) arrange(text []byte, members []member) ([]byte, error) {
	if len(members) == 0 || len(members) == 1 && !members[0].drop {
		return text, nil
	}
	// The sorted members are appended behind the unsorted members and then moved to the place of
	// the unsorted members. So each object copies its text twice, and allocates nothing while text
	// has capacity.
	start, end := members[0].start, len(text)
	name := func(m member) []byte { return text[m.start+1 : m.nameEnd-1] }
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(name(a), name(b)) })
	for i, m := range members {
		if i > 0 && bytes.Equal(name(members[i-1]), name(m)) {
			return nil, w.refuse(max(members[i-1].offset, m.offset), "second member of one name")
		}
		if m.drop {
			continue
		}
		if len(text) > end {
			text = append(text, ',')
		}
		text = append(text, text[m.start:m.end]...)
	}
	n := copy(text[start:], text[end:])
	return text[:start+n], nil
}

func (w *rewriter) array(pointers []Pointer) error {
	if err := w.enter(); err != nil {
		return err
	}
	first, index := len(w.out), 0
	for w.skipSpace(); !w.accept(']'); w.skipSpace() {
		if index > 0 && !w.accept(',') {
			return w.refuse(w.pos, "expected ',' or ']'")
		}
		start := len(w.out)
		if start > first {
			w.out = append(w.out, ',')
		}
		drop, err := w.element(pointers, index)
		if err != nil {
			return err
		}
		if drop {
			w.out = w.out[:start]
		}
		index++
	}
	w.leave(']')
	return nil
}

func (w *rewriter) element(pointers []Pointer, index int) (drop bool, err error) {
	if len(pointers) > 0 {
		token := strconv.AppendInt(append(make([]byte, 0, 24), '"'), int64(index), 10)
		pointers = below(pointers, w.depth-1, append(token, '"'))
	}
	return w.value(pointers)
}
