package idem

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// HashOption chooses what matters to HashJSON. It is fit to be kept and shared.
type HashOption struct {
	only, without []pointer
	err           error
}

// Only lets nothing matter but the values at these JSON pointers (RFC 6901), such as "/amount" or "/items/0/sku". The
// pointer "" is the whole document.
//
// The hash covers each pointer that is present, together with its value. So null differs from a missing member, the value
// of "/a" from a document that is the same, and a pointer that is added does not change the hash of a document that has
// nothing there. The order of pointers does not matter, nor does one that is given twice or is inside another. Several Only
// add up.
//
// HashJSON refuses a document in which none of the pointers is present, with ErrInvalidJSON, because all such documents
// would hash alike. It refuses Only without any pointer, with ErrInvalidPointer.
func Only(pointers ...string) HashOption {
	if len(pointers) == 0 {
		return HashOption{err: fmt.Errorf("%w: Only selects nothing", ErrInvalidPointer)}
	}
	only, err := parsePointers(pointers)
	return HashOption{only: only, err: err}
}

// Without lets the values at these JSON pointers (RFC 6901) not matter, such as a client's timestamp or trace id. The
// document hashes as if it did not contain them, hence the same as one that does not. Elements of an array have the index
// that they have in the document as given. Several Without add up.
//
// Without also takes its values out of what Only selects. HashJSON refuses, with ErrInvalidPointer, a Without that leaves
// nothing of the document or of a pointer of Only: the pointer "", the same pointer, or one around it.
func Without(pointers ...string) HashOption {
	without, err := parsePointers(pointers)
	for i := range without {
		without[i].drop = true
	}
	return HashOption{without: without, err: err}
}

type pointer struct {
	text   string
	tokens []string // canonical strings, to be compared with names in their canonical form
	drop   bool     // from Without
}

var unescapeToken = strings.NewReplacer("~0", "~", "~1", "/")

func parsePointers(texts []string) ([]pointer, error) {
	pointers := make([]pointer, len(texts))
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
			return nil, fmt.Errorf("%w: %q %s", ErrInvalidPointer, text, reason)
		}
		tokens := strings.Split(text, "/")[1:]
		for j, token := range tokens {
			tokens[j] = string(appendString(nil, unescapeToken.Replace(token)))
		}
		pointers[i] = pointer{text: text, tokens: tokens}
	}
	return pointers, nil
}

// mergePointers returns the pointers of opts, or the one to the whole document if none is from Only. They are sorted so that
// those to parts of a value are neighbours, after the one to the value itself.
func mergePointers(opts []HashOption) ([]pointer, error) {
	var only, all []pointer
	for _, o := range opts {
		if o.err != nil {
			return nil, o.err
		}
		only = append(only, o.only...)
		all = append(all, o.without...)
	}
	if len(only) == 0 {
		only = []pointer{{}}
	}
	all = append(all, only...)
	slices.SortStableFunc(all, func(p, q pointer) int { return slices.Compare(p.tokens, q.tokens) })
	return outermost(all)
}

// outermost takes out of sorted the pointers that are inside another of the same option, and refuses those of Only that are
// inside one of Without.
func outermost(sorted []pointer) ([]pointer, error) {
	var only, without *pointer
	kept := sorted[:0]
	for _, p := range sorted {
		switch {
		case without.contains(p) && !p.drop:
			return nil, fmt.Errorf("%w: Without %q leaves nothing of %q", ErrInvalidPointer, without.text, p.text)
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

// contains reports whether q is p or points to a part of what p points to.
func (p *pointer) contains(q pointer) bool {
	return p != nil && len(p.tokens) <= len(q.tokens) && slices.Equal(p.tokens, q.tokens[:len(p.tokens)])
}

// below returns those of the sorted pointers that have this token at this depth.
func below(pointers []pointer, depth int, token []byte) []pointer {
	other := func(p pointer) bool { return p.tokens[depth] != string(token) }
	for len(pointers) > 0 && other(pointers[0]) {
		pointers = pointers[1:]
	}
	if n := slices.IndexFunc(pointers, other); n >= 0 {
		pointers = pointers[:n]
	}
	return pointers
}
