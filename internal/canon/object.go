package canon

import (
	"bytes"
	"slices"
)

// A member of an object is a stretch of canonical text.
type member struct {
	start, nameEnd, end int
	offset              int // of the name in the document
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

// arrange sorts the members that text ends in, takes out those to drop and puts commas between the others.
func (w *rewriter) arrange(text []byte, members []member) ([]byte, error) {
	if len(members) == 0 || len(members) == 1 && !members[0].drop {
		return text, nil
	}
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
