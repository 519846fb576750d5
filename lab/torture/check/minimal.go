package check

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// essential leaves out every read that cannot make a difference: if another one read the same within its time, whatever
// order suits that one suits both.
func essential(reads []*step) []*step {
	slices.SortStableFunc(reads, func(a, b *step) int {
		return cmp.Or(cmp.Compare(a.to, b.to), -cmp.Compare(a.from, b.from))
	})
	type seen struct {
		kind    stepKind
		x       *execution
		payload string
		created int64
	}
	latest := make(map[seen]*step) // of those kept, which ended no later
	var kept []*step
	for _, s := range reads {
		what := seen{s.kind, s.x, s.payload, s.created}
		if other := latest[what]; other != nil && other.from >= s.from {
			continue
		}
		latest[what] = s
		kept = append(kept, s)
	}
	return kept
}

// minimal leaves out of an impossible history whatever can be left out so that it stays impossible. An execution only goes
// together with all that was read of it: a read without its execution would be impossible for another reason.
func (k *key) minimal(steps []*step) []*step {
	for size := len(steps) / 2; size > 0; size /= 2 { // reads, in ever smaller portions
		for from := 0; from < len(steps); {
			portion := steps[from:min(from+size, len(steps))]
			rest := k.impossible(steps, func(s *step) bool { return s.kind > write && slices.Contains(portion, s) })
			if rest == nil {
				from += size
				continue
			}
			steps = rest
		}
	}
	if slices.ContainsFunc(steps, func(s *step) bool { return s.kind == refuse }) {
		return steps // which does not say what it was refused for
	}
	for _, x := range k.executions {
		if rest := k.impossible(steps, func(s *step) bool { return s.x == x }); rest != nil {
			steps = rest
		}
	}
	return steps
}

// impossible returns the steps without those that are dropped, nil if that are all of them or if what is left is possible.
func (k *key) impossible(steps []*step, drop func(*step) bool) []*step {
	rest := slices.DeleteFunc(slices.Clone(steps), drop)
	if len(rest) == len(steps) || k.order(rest) != porcupine.Illegal {
		return nil
	}
	return rest
}
