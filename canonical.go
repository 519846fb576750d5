package idem

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

const (
	maxDepth    = 256  // each object around a byte copies it: see arrange
	maxExponent = 1e15 // far from the limits of an int64: see exponent
)

// A canonicalizer reads a document once and writes its canonical form.
type canonicalizer struct {
	doc     []byte
	pos     int
	depth   int // arrays and objects that are open
	out     []byte
	members []member // of all objects that are open, those of the innermost last

	text     []byte // what is hashed
	selected []member
}

// A member of an object is a stretch of canonical text.
type member struct {
	start, nameEnd, end int
	offset              int // of the name in the document
	drop                bool
}

func canonicalText(doc []byte, pointers []pointer) ([]byte, error) {
	c := canonicalizer{
		doc:     doc,
		out:     make([]byte, 0, 2*len(doc)),
		members: make([]member, 0, 16),
		text:    append(make([]byte, 0, len(doc)+64), jsonTag+"{"...),
	}
	if _, err := c.value(pointers); err != nil {
		return nil, err
	}
	if c.skipSpace(); c.pos < len(doc) {
		return nil, c.refuse(c.pos, "data after the value")
	}
	if len(c.selected) == 0 {
		return nil, c.refuse(0, "nothing that Only selects")
	}
	text, err := c.arrange(c.text, c.selected)
	return append(text, '}'), err
}

// value reads a value. The pointers are those to it and to parts of it. It reports whether the value is to be dropped.
func (c *canonicalizer) value(pointers []pointer) (drop bool, err error) {
	var here *pointer
	if len(pointers) > 0 && len(pointers[0].tokens) == c.depth {
		here, pointers = &pointers[0], pointers[1:]
	}
	start := len(c.out)
	switch c.skipSpace(); c.peek() {
	case '{':
		err = c.object(pointers)
	case '[':
		err = c.array(pointers)
	case '"':
		err = c.string()
	case 't':
		err = c.literal("true")
	case 'f':
		err = c.literal("false")
	case 'n':
		err = c.literal("null")
	default:
		err = c.number()
	}
	if err != nil || here == nil {
		return false, err
	}
	if !here.drop {
		c.pick(here.text, c.out[start:])
	}
	return here.drop, nil
}

// pick adds a member to what is hashed.
func (c *canonicalizer) pick(pointer string, value []byte) {
	m := member{start: len(c.text)}
	c.text = appendString(c.text, pointer)
	m.nameEnd = len(c.text)
	c.text = append(append(c.text, ':'), value...)
	m.end = len(c.text)
	c.selected = append(c.selected, m)
}

func (c *canonicalizer) object(pointers []pointer) error {
	if err := c.open(); err != nil {
		return err
	}
	first := len(c.members)
	for c.skipSpace(); !c.accept('}'); c.skipSpace() {
		if len(c.members) > first && !c.accept(',') {
			return c.refuse(c.pos, "expected ',' or '}'")
		}
		if err := c.member(pointers); err != nil {
			return err
		}
	}
	var err error
	c.out, err = c.arrange(c.out, c.members[first:])
	c.members = c.members[:first]
	c.close('}')
	return err
}

func (c *canonicalizer) member(pointers []pointer) (err error) {
	c.skipSpace()
	m := member{start: len(c.out), offset: c.pos}
	if c.peek() != '"' {
		return c.refuse(c.pos, "expected a name")
	}
	if err := c.string(); err != nil {
		return err
	}
	m.nameEnd = len(c.out)
	if c.skipSpace(); !c.accept(':') {
		return c.refuse(c.pos, "expected ':'")
	}
	c.out = append(c.out, ':')
	m.drop, err = c.value(below(pointers, c.depth-1, c.out[m.start:m.nameEnd]))
	m.end = len(c.out)
	c.members = append(c.members, m)
	return err
}

// arrange sorts the members that text ends in, takes out those to drop and puts commas between the others.
func (c *canonicalizer) arrange(text []byte, members []member) ([]byte, error) {
	if len(members) == 0 || len(members) == 1 && !members[0].drop {
		return text, nil
	}
	start, end := members[0].start, len(text)
	name := func(m member) []byte { return text[m.start+1 : m.nameEnd-1] }
	slices.SortFunc(members, func(a, b member) int { return bytes.Compare(name(a), name(b)) })
	for i, m := range members {
		if i > 0 && bytes.Equal(name(members[i-1]), name(m)) {
			return nil, c.refuse(max(members[i-1].offset, m.offset), "second member of one name")
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

func (c *canonicalizer) array(pointers []pointer) error {
	if err := c.open(); err != nil {
		return err
	}
	first, index := len(c.out), 0
	for c.skipSpace(); !c.accept(']'); c.skipSpace() {
		if index > 0 && !c.accept(',') {
			return c.refuse(c.pos, "expected ',' or ']'")
		}
		start := len(c.out)
		if start > first {
			c.out = append(c.out, ',')
		}
		drop, err := c.element(pointers, index)
		if err != nil {
			return err
		}
		if drop {
			c.out = c.out[:start]
		}
		index++
	}
	c.close(']')
	return nil
}

func (c *canonicalizer) element(pointers []pointer, index int) (drop bool, err error) {
	if len(pointers) > 0 {
		token := strconv.AppendInt(append(make([]byte, 0, 24), '"'), int64(index), 10)
		pointers = below(pointers, c.depth-1, append(token, '"'))
	}
	return c.value(pointers)
}

func (c *canonicalizer) open() error {
	if c.depth == maxDepth {
		return c.refuse(c.pos, "nested too deep")
	}
	c.out = append(c.out, c.doc[c.pos])
	c.pos++
	c.depth++
	return nil
}

func (c *canonicalizer) close(bracket byte) {
	c.out = append(c.out, bracket)
	c.depth--
}

func (c *canonicalizer) skipSpace() {
	for b := c.peek(); b == ' ' || b == '\t' || b == '\n' || b == '\r'; b = c.peek() {
		c.pos++
	}
}

// peek returns the next byte, or at the end 0, which no token contains.
func (c *canonicalizer) peek() byte {
	if c.pos == len(c.doc) {
		return 0
	}
	return c.doc[c.pos]
}

func (c *canonicalizer) accept(b byte) bool {
	if c.peek() != b {
		return false
	}
	c.pos++
	return true
}

func (c *canonicalizer) refuse(offset int, reason string) error {
	if offset == len(c.doc) {
		reason = "unexpected end"
	}
	return fmt.Errorf("%w: %s at byte %d", ErrInvalidJSON, reason, offset)
}
