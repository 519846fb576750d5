package canon

import (
	"fmt"
	"slices"
)

// A Selection says which parts of a document matter. Select makes one, and it is fit to be kept and shared.
//
// Its pointers are sorted so that those to parts of a value are neighbours, after the one to the value itself. Those with
// drop are taken out of the others.
type Selection []Pointer

// Select returns the selection of the values at the pointers of only, or of the whole document if there are none, without
// the values at the pointers of without. It keeps neither slice. If nothing would be left of a pointer of only, whatever the
// document, the error wraps ErrPointer.
func Select(only, without []Pointer) (Selection, error) {
	all := make([]Pointer, 0, len(without)+max(len(only), 1))
	for _, p := range without {
		p.drop = true
		all = append(all, p)
	}
	if len(only) == 0 {
		all = append(all, Pointer{})
	}
	all = append(all, only...)
	slices.SortStableFunc(all, func(p, q Pointer) int { return slices.Compare(p.tokens, q.tokens) })
	return outermost(all)
}

// outermost takes out of sorted the pointers that are inside another of the same list, and refuses those of only that are
// inside one of without.
func outermost(sorted []Pointer) (Selection, error) {
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

// below returns those of the sorted pointers that have this token at this depth.
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
