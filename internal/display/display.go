// Package display prepares text from clients for errors, logs, the command line and its web page,
// and for columns of Postgres. Key abridges an idempotency key, because a caller that knows a key can
// read its stored response. Printable shows everything else, such as the id of a message, in full.
package display

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown is the maximum number of characters of a key that Key shows.
const maxShown = 4

// Key returns the first characters of a key and the length of the key in bytes, as in 7f3c…(36). It
// shows four characters. For a key with fewer than eight characters it shows half of them, but at
// least one. The result is printable.
func Key(key string) string {
	count := 0 // characters, counted up to 2*maxShown
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

// Printable returns text in a form that cannot control a terminal or reorder a line. It escapes
// control characters, invisible and bidirectional characters, and invalid UTF-8, and leaves other
// characters unchanged.
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

// Storable returns text as Postgres can store it, truncated to limit bytes. NULs and invalid UTF-8
// become U+FFFD.
func Storable(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
