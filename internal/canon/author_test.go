package canon_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// author invents documents and writes a document in many spellings.
type author struct{ *rand.Rand }

func newAuthor(t *testing.T) author {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return author{rand.New(rand.NewPCG(seed, 0))}
}

func (a author) chance(n int) bool { return a.IntN(n) == 0 }

func (a author) letters(from string, most int) string {
	runes := []rune(from)
	var s strings.Builder
	for range a.IntN(most + 1) {
		s.WriteRune(runes[a.IntN(len(runes))])
	}
	return s.String()
}

func (a author) document(depth int) any {
	switch kind := a.IntN(8); {
	case kind == 0:
		return nil
	case kind == 1:
		return a.chance(2)
	case kind == 2:
		return decimal{digits: "0"}
	case kind == 3:
		return decimal{a.chance(2), strconv.Itoa(1+a.IntN(9)) + a.letters("0123456789", 20), int64(a.IntN(60) - 30)}
	case kind == 4 || depth == 0:
		return a.letters("ab/~\"\\\n\x00\x1f\x7fé€\u2028\ufffd😀", 6)
	case kind == 5:
		array := make([]any, a.IntN(5))
		for i := range array {
			array[i] = a.document(depth - 1)
		}
		return array
	default:
		members := make(object, a.IntN(5))
		for i := range members {
			members[i] = field{a.letters("0/~a\"\\\x00é😀", 3) + strconv.Itoa(i), a.document(depth - 1)}
		}
		return members
	}
}

// write appends a random spelling of value.
func (a author) write(dst []byte, value any) []byte {
	dst = a.writeSpace(dst)
	switch v := value.(type) {
	case nil:
		dst = append(dst, "null"...)
	case bool:
		dst = strconv.AppendBool(dst, v)
	case string:
		dst = a.writeString(dst, v)
	case decimal:
		dst = a.writeNumber(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, element := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = a.write(dst, element)
		}
		dst = append(a.writeSpace(dst), ']')
	case object:
		dst = append(dst, '{')
		for i, j := range a.Perm(len(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = a.writeString(a.writeSpace(dst), v[j].name)
			dst = a.write(append(a.writeSpace(dst), ':'), v[j].value)
		}
		dst = append(a.writeSpace(dst), '}')
	}
	return a.writeSpace(dst)
}

func (a author) writeSpace(dst []byte) []byte {
	if !a.chance(3) {
		return dst
	}
	return append(dst, a.letters(" \t\r\n", 3)...)
}

func (a author) writeString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		short := strings.IndexRune("\"\\/\b\f\n\r\t", r)
		switch {
		case short >= 0 && a.chance(2):
			dst = append(dst, '\\', `"\/bfnrt`[short])
		case r < ' ' || r == '"' || r == '\\' || a.chance(3):
			for _, unit := range utf16.AppendRune(nil, r) {
				dst = fmt.Appendf(dst, [2]string{`\u%04x`, `\u%04X`}[a.IntN(2)], unit)
			}
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

func (a author) writeNumber(dst []byte, d decimal) []byte {
	if d.negative || d.digits == "0" && a.chance(2) {
		dst = append(dst, '-')
	}
	zeros := strings.Repeat("0", a.IntN(4))
	if d.digits == "0" { // further zeros may follow the point only
		dst = append(dst, '0')
		if zeros != "" {
			dst = append(append(dst, '.'), zeros...)
		}
		return a.writeExponent(dst, int64(a.IntN(100)-50))
	}
	digits, exponent := d.digits+zeros, d.exponent-int64(len(zeros))
	point := a.IntN(len(digits) + 1)
	integer, fraction := digits[:point], digits[point:]
	if integer == "" {
		integer = "0"
	}
	dst = append(dst, integer...)
	if fraction != "" {
		dst = append(append(dst, '.'), fraction...)
	}
	return a.writeExponent(dst, exponent+int64(len(fraction)))
}

func (a author) writeExponent(dst []byte, exponent int64) []byte {
	if exponent == 0 && a.chance(2) {
		return dst
	}
	dst = append(dst, "eE"[a.IntN(2)])
	switch {
	case exponent < 0:
		dst, exponent = append(dst, '-'), -exponent
	case a.chance(2):
		dst = append(dst, '+')
	}
	return strconv.AppendInt(append(dst, a.letters("0", 3)...), exponent, 10)
}

// other returns a value with a minimal difference from value.
func (a author) other(value any) any {
	switch v := value.(type) {
	case nil:
		return a.chance(2)
	case bool:
		if a.chance(2) {
			return nil
		}
		return !v
	case string:
		return v + a.letters("a\x00\u0301 ", 2) + "b"
	case decimal:
		switch {
		case a.chance(4):
			return string(a.writeNumber(nil, v))
		case v.digits == "0":
			return decimal{a.chance(2), "1", int64(a.IntN(800) - 400)}
		case a.chance(3):
			v.negative = !v.negative
		case a.chance(2):
			v.exponent += int64(1 - 2*a.IntN(2))
		default:
			v.digits, v.exponent = v.digits+strings.Repeat("0", 20)+"1", v.exponent-21
		}
		return v
	case []any:
		return append(slices.Clone(v), nil)
	case object:
		return append(slices.Clone(v), field{"new", nil})
	}
	panic("no part of a document")
}
