// Package abridge prepares text that comes from strangers for errors, logs, the command line and its page. Key abridges an
// idempotency key, which gives access to a stored response. Everything else, such as the id of a message, is shown in full by
// Printable.
package abridge

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown is how many characters of a key Key shows at most.
const maxShown = 4

// Key returns the first characters of a key and its length in bytes, as in 7f3c…(36). It shows four characters. Of a key with
// fewer than eight it shows half, but at least one. The result is printable.
func Key(key string) string {
	count := 0 // characters, as far as they matter
	for rest := key; rest != "" && count < 2*maxShown; count++ {
		_, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
	}
	end := 0
	for range min(max(count/2, 1), count) {
		_, size := utf8.DecodeRuneInString(key[end:])
		end += size
	}
	return Printable(key[:end]) + "…(" + strconv.Itoa(len(key)) + ")"
}

// Printable returns text with everything escaped that could steer a terminal or reorder a line: control characters, invisible
// and bidirectional characters, and invalid UTF-8. A text without them is returned as it is.
func Printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, isUnprintable) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case isUnprintable(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }
