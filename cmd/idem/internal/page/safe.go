package page

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Safe returns text that comes from strangers so that it cannot steer a terminal, nor turn a line around: what is not a
// letter, a mark, a number, punctuation, a symbol or a plain space is written as an escape.
func Safe(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, unprintable) {
		return text
	}
	var safe strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&safe, `\x%02x`, text[0])
		case unprintable(r):
			quoted := strconv.QuoteRuneToASCII(r)
			safe.WriteString(quoted[1 : len(quoted)-1])
		default:
			safe.WriteString(text[:size])
		}
		text = text[size:]
	}
	return safe.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// SafeLines is Safe for text whose lines and tabs are kept.
func SafeLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		parts := strings.Split(line, "\t")
		for j, part := range parts {
			parts[j] = Safe(part)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}
