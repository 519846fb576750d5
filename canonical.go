package idem

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
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

func (c *canonicalizer) literal(word string) error {
	if !bytes.HasPrefix(c.doc[c.pos:], []byte(word)) {
		return c.refuse(c.pos, "expected a value")
	}
	c.out = append(c.out, word...)
	c.pos += len(word)
	return nil
}

// string reads a string from its opening quote.
func (c *canonicalizer) string() error {
	c.pos++
	c.out = append(c.out, '"')
	for {
		start := c.pos
		for c.pos < len(c.doc) && isPlain(c.doc[c.pos]) {
			c.pos++
		}
		c.out = append(c.out, c.doc[start:c.pos]...)
		if c.accept('"') {
			c.out = append(c.out, '"')
			return nil
		}
		r, err := c.character()
		if err != nil {
			return err
		}
		c.out = appendRune(c.out, r)
	}
}

// isPlain reports whether a string has this byte as it is and on its own.
func isPlain(b byte) bool { return ' ' <= b && b < utf8.RuneSelf && b != '"' && b != '\\' }

// character reads a character of a string that is not plain.
func (c *canonicalizer) character() (rune, error) {
	switch b := c.peek(); {
	case b == '\\':
		return c.escape()
	case b < ' ':
		return 0, c.refuse(c.pos, "control character in a string")
	}
	r, n := utf8.DecodeRune(c.doc[c.pos:])
	if r == utf8.RuneError && n == 1 {
		return 0, c.refuse(c.pos, "invalid UTF-8")
	}
	c.pos += n
	return r, nil
}

// escape reads an escape sequence, or two that are a surrogate pair.
func (c *canonicalizer) escape() (rune, error) {
	start := c.pos
	if rest := c.doc[c.pos+1:]; len(rest) > 0 {
		if i := strings.IndexByte(`"\/bfnrt`, rest[0]); i >= 0 {
			c.pos += 2
			return rune("\"\\/\b\f\n\r\t"[i]), nil
		}
	}
	r := c.codeUnit()
	if utf16.IsSurrogate(r) {
		if r = utf16.DecodeRune(r, c.codeUnit()); r == utf8.RuneError {
			return 0, c.refuse(start, "unpaired surrogate")
		}
	}
	if r < 0 {
		return 0, c.refuse(start, "invalid escape sequence")
	}
	return r, nil
}

// codeUnit reads \u and four hex digits, or returns -1.
func (c *canonicalizer) codeUnit() rune {
	rest := c.doc[c.pos:]
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(rest[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	c.pos += 6
	return rune(n)
}

func (c *canonicalizer) number() error {
	start := c.pos
	negative := c.accept('-')
	integer := c.digits()
	if len(integer) == 0 {
		return c.refuse(c.pos, "expected a value")
	}
	if len(integer) > 1 && integer[0] == '0' {
		return c.refuse(start, "number that begins with 0")
	}
	var fraction []byte
	if c.accept('.') {
		if fraction = c.digits(); len(fraction) == 0 {
			return c.refuse(c.pos, "expected a digit")
		}
	}
	exponent, err := c.exponent()
	if err != nil {
		return err
	}
	if !c.appendNumber(negative, integer, fraction, exponent) {
		return c.refuse(start, "number out of range")
	}
	return nil
}

func (c *canonicalizer) digits() []byte {
	start := c.pos
	for c.pos < len(c.doc) && '0' <= c.doc[c.pos] && c.doc[c.pos] <= '9' {
		c.pos++
	}
	return c.doc[start:c.pos]
}

// exponent reads the exponent of a number, if there is one. One that does not fit comes back as the nearest int64. That is
// out of range by so much that what the digits add to it makes no difference, even if it overflows.
func (c *canonicalizer) exponent() (int64, error) {
	if !c.accept('e') && !c.accept('E') {
		return 0, nil
	}
	start := c.pos
	if !c.accept('-') {
		c.accept('+')
	}
	if len(c.digits()) == 0 {
		return 0, c.refuse(c.pos, "expected a digit")
	}
	n, _ := strconv.ParseInt(string(c.doc[start:c.pos]), 10, 64)
	return n, nil
}

// appendNumber counts and trims digits but does not compute with them: that is exact, and costs no more than the length of
// the number. It reports whether the exponent is in range.
func (c *canonicalizer) appendNumber(negative bool, integer, fraction []byte, exponent int64) bool {
	integer = bytes.TrimLeft(integer, "0")
	fraction = bytes.TrimRight(fraction, "0")
	exponent -= int64(len(fraction))
	if len(integer) == 0 {
		fraction = bytes.TrimLeft(fraction, "0")
	}
	if len(fraction) == 0 {
		trimmed := bytes.TrimRight(integer, "0")
		exponent += int64(len(integer) - len(trimmed))
		integer = trimmed
	}
	if len(integer)+len(fraction) == 0 {
		c.out = append(c.out, '0')
		return true
	}
	if negative {
		c.out = append(c.out, '-')
	}
	c.out = append(append(c.out, integer...), fraction...)
	if exponent != 0 {
		c.out = strconv.AppendInt(append(c.out, 'e'), exponent, 10)
	}
	return -maxExponent <= exponent && exponent <= maxExponent
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

// appendString appends a canonical string.
func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		dst = appendRune(dst, r)
	}
	return append(dst, '"')
}

func appendRune(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r < ' ':
		return append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
	default:
		return utf8.AppendRune(dst, r)
	}
}
