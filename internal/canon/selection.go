package canon

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Selection says which parts of a document Append writes. Select returns a Selection, which may be
// used for many documents.
//
// The pointers of a Selection are sorted, so that a pointer to a value comes before the pointers to
// parts of the value. A pointer with drop excludes its value from the values of the other pointers.
type Selection []Pointer

// Select returns a Selection of the values at the included pointers, without the values at the
// excluded pointers. If included is empty, the whole document is included. Select does not retain
// the slices. If an excluded pointer removes the whole value of an included pointer, the error
// wraps ErrPointer.
func Select(included, excluded []Pointer) (Selection, error) {
	all := make([]Pointer, 0, len(excluded)+max(len(included), 1))
	for _, p := range excluded {
		p.drop = true
		all = append(all, p)
	}
	if len(included) == 0 {
		all = append(all, Pointer{})
	}
	all = append(all, included...)
	slices.SortStableFunc(all, func(p, q Pointer) int { return slices.Compare(p.tokens, q.tokens) })
	return outermost(all)
}

// outermost removes each included pointer that is inside another included pointer, and each
// excluded pointer that is inside another excluded pointer. It returns an error if an included
// pointer is inside an excluded pointer.
func outermost(sorted []Pointer) (Selection, error) {
	// In sorted order, all pointers inside a pointer follow it directly. So it is enough to compare
	// p with the last included pointer that was kept: if any included pointer contains p, the last
	// one does. The same is true of excluded pointers.
	var only, without *Pointer
	kept := sorted[:0]
	for _, p := range sorted {
		switch {
		case without.contains(p) && !p.drop:
			return nil, fmt.Errorf("%w: Without %q leaves nothing of %q", ErrPointer, without.text, p.text)
		case without.contains(p), only.contains(p) && !p.drop:
			continue
		}
		kept = append(kept, p)
		if last := &kept[len(kept)-1]; p.drop {
			without = last
		} else {
			only = last
		}
	}
	return kept, nil
}

// below returns those of the sorted pointers whose token at depth equals token.
func below(pointers []Pointer, depth int, token []byte) []Pointer {
	other := func(p Pointer) bool { return p.tokens[depth] != string(token) }
	for len(pointers) > 0 && other(pointers[0]) {
		pointers = pointers[1:]
	}
	if n := slices.IndexFunc(pointers, other); n >= 0 {
		pointers = pointers[:n]
	}
	return pointers
}

// Pointer is a JSON pointer (RFC 6901). The zero Pointer is "", which points to the whole document.
type Pointer struct {
	text   string
	tokens []string // in canonical form, so that they can be compared with the canonical names of members
	drop   bool     // exclude the value: see Selection
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

// contains reports whether q is p or points to a part of the value at p.
func (p *Pointer) contains(q Pointer) bool {
	return p != nil && len(p.tokens) <= len(q.tokens) && slices.Equal(p.tokens, q.tokens[:len(p.tokens)])
}
