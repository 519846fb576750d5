package canon

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Selection says which parts of a document matter. Select makes one. It may be kept and shared.
//
// Its pointers are sorted, so that pointers to parts of a value follow the pointer to the value. A
// pointer with drop removes its value from the values of the other pointers.
type Selection []Pointer

// Select returns a Selection of the values at the included pointers, except the values at the
// excluded pointers. If included is empty, the whole document is included. Select keeps neither
// slice. If an excluded pointer removes the whole value of an included one, the error wraps
// ErrPointer.
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

// outermost removes each included pointer that is inside another included pointer. It does the same
// with the excluded pointers. It returns an error if an included pointer is inside an excluded one.
func outermost(sorted []Pointer) (Selection, error) {
	// In sorted order, a pointer follows all pointers that contain it, and what lies between two
	// such pointers is inside the first. So if any pointer of a list contains p, the last pointer
	// kept of that list contains p.
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

// below returns the pointers that have token at depth. pointers are sorted.
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
	tokens []string // in canonical form, so that they can be compared with canonical names
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

// contains reports whether q is p or points to a part of the value at p.
func (p *Pointer) contains(q Pointer) bool {
	return p != nil && len(p.tokens) <= len(q.tokens) && slices.Equal(p.tokens, q.tokens[:len(p.tokens)])
}
