package canon

import (
	"bytes"
	"strconv"
)

const maxExponent = 1e15 // far below the maximum int64, because exponents are adjusted after parsing: see exponent

func (w *rewriter) number() error {
	start := w.pos
	negative := w.accept('-')
	integer := w.digits()
	if len(integer) == 0 {
		return w.refuse(w.pos, "expected a value")
	}
	if len(integer) > 1 && integer[0] == '0' {
		return w.refuse(start, "number that begins with 0")
	}
	var fraction []byte
	if w.accept('.') {
		if fraction = w.digits(); len(fraction) == 0 {
			return w.refuse(w.pos, "expected a digit")
		}
	}
	exponent, err := w.exponent()
	if err != nil {
		return err
	}
	if !w.appendNumber(negative, integer, fraction, exponent) {
		return w.refuse(start, "number out of range")
	}
	return nil
}

func (w *rewriter) digits() []byte {
	start := w.pos
	for w.pos < len(w.doc) && '0' <= w.doc[w.pos] && w.doc[w.pos] <= '9' {
		w.pos++
	}
	return w.doc[start:w.pos]
}

// exponent reads the exponent of a number, if there is one. An exponent that does not fit into an
// int64 becomes the nearest int64. appendNumber later adds or subtracts numbers of digits. The
// result is then still out of range, even if the adjustment overflows.
func (w *rewriter) exponent() (int64, error) {
	if !w.accept('e') && !w.accept('E') {
		return 0, nil
	}
	start := w.pos
	if !w.accept('-') {
		w.accept('+')
	}
	if len(w.digits()) == 0 {
		return 0, w.refuse(w.pos, "expected a digit")
	}
	n, _ := strconv.ParseInt(string(w.doc[start:w.pos]), 10, 64)
	return n, nil
}

// appendNumber appends a number and reports whether its exponent is in range. It never converts the
// digits to a number, but only counts and trims them. This is exact and takes linear time.
func (w *rewriter) appendNumber(negative bool, integer, fraction []byte, exponent int64) bool {
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
		w.out = append(w.out, '0')
		return true
	}
	if negative {
		w.out = append(w.out, '-')
	}
	w.out = append(append(w.out, integer...), fraction...)
	if exponent != 0 {
		w.out = strconv.AppendInt(append(w.out, 'e'), exponent, 10)
	}
	return -maxExponent <= exponent && exponent <= maxExponent
}
