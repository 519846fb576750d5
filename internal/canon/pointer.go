package canon

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Pointer is a JSON pointer (RFC 6901). The zero Pointer is "", which points to the whole document.
type Pointer struct {
	text   string
	tokens []string // canonical strings, to be compared with names in their canonical form
	drop   bool     // see Selection
}

var unescapeToken = strings.NewReplacer("~0", "~", "~1", "/")

// ParsePointers parses JSON pointers. Its errors wrap ErrPointer.
func ParsePointers(texts []string) ([]Pointer, error) {
	pointers := make([]Pointer, len(texts))
	for i, text := range texts {
		reason := ""
		switch {
		case text != "" && text[0] != '/':
			reason = "does not begin with /"
		case strings.Count(text, "~") != strings.Count(text, "~0")+strings.Count(text, "~1"):
			reason = "has a ~ that is not ~0 or ~1"
		case !utf8.ValidString(text):
			reason = "is not valid UTF-8"
		}
		if reason != "" {
			return nil, fmt.Errorf("%w: %q %s", ErrPointer, text, reason)
		}
		tokens := strings.Split(text, "/")[1:]
		for j, token := range tokens {
			tokens[j] = string(appendString(nil, unescapeToken.Replace(token)))
		}
		pointers[i] = Pointer{text: text, tokens: tokens}
	}
	return pointers, nil
}

// contains reports whether q is p or points to a part of what p points to.
func (p *Pointer) contains(q Pointer) bool {
	return p != nil && len(p.tokens) <= len(q.tokens) && slices.Equal(p.tokens, q.tokens[:len(p.tokens)])
}
