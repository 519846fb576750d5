package idem

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

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
