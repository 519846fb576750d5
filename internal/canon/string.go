package canon

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string from its opening quote.
func (w *rewriter) string() error {
	w.pos++
	w.out = append(w.out, '"')
	for {
		start := w.pos
		for w.pos < len(w.doc) && isPlain(w.doc[w.pos]) {
			w.pos++
		}
		w.out = append(w.out, w.doc[start:w.pos]...)
		if w.accept('"') {
			w.out = append(w.out, '"')
			return nil
		}
		r, err := w.character()
		if err != nil {
			return err
		}
		w.out = appendRune(w.out, r)
	}
}

// isPlain reports whether b, a byte in a string, is a character that is copied as it is.
func isPlain(b byte) bool { return ' ' <= b && b < utf8.RuneSelf && b != '"' && b != '\\' }

// character reads a character of a string that isPlain rejects: an escape sequence or a character
// beyond ASCII. It fails at a control character and at invalid UTF-8.
func (w *rewriter) character() (rune, error) {
	switch b := w.peek(); {
	case b == '\\':
		return w.escape()
	case b < ' ':
		return 0, w.refuse(w.pos, "control character in a string")
	}
	r, n := utf8.DecodeRune(w.doc[w.pos:])
	if r == utf8.RuneError && n == 1 {
		return 0, w.refuse(w.pos, "invalid UTF-8")
	}
	w.pos += n
	return r, nil
}

// escape reads an escape sequence, or two that form a surrogate pair.
func (w *rewriter) escape() (rune, error) {
	start := w.pos
	if rest := w.doc[w.pos+1:]; len(rest) > 0 {
		if i := strings.IndexByte(`"\/bfnrt`, rest[0]); i >= 0 {
			w.pos += 2
			return rune("\"\\/\b\f\n\r\t"[i]), nil
		}
	}
	r := w.codeUnit()
	if utf16.IsSurrogate(r) {
		if r = utf16.DecodeRune(r, w.codeUnit()); r == utf8.RuneError {
			return 0, w.refuse(start, "unpaired surrogate")
		}
	}
	if r < 0 {
		return 0, w.refuse(start, "invalid escape sequence")
	}
	return r, nil
}

// codeUnit reads \u and four hex digits. It returns -1 if the document continues otherwise.
func (w *rewriter) codeUnit() rune {
	rest := w.doc[w.pos:]
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(rest[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	w.pos += 6
	return rune(n)
}

// appendString appends s in canonical form, as a string with quotes.
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
