package check

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// essential removes redundant reads. A read is redundant if another read of the same kind saw the
// same and its interval lies within the interval of the first: every order that suits the shorter
// interval suits the longer one.
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
	latest := make(map[seen]*step) // of the kept reads, which end no later
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

// minimal removes steps from an impossible history as long as it stays impossible. It removes reads
// first, in smaller and smaller portions.
//
// An execution is removed only together with all reads of it. A read without its execution would be
// impossible for another reason.
func (k *key) minimal(steps []*step) []*step {
	for size := len(steps) / 2; size > 0; size /= 2 {
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
		return steps // a refusal does not say which execution it saw
	}
	for _, x := range k.executions {
		if rest := k.impossible(steps, func(s *step) bool { return s.x == x }); rest != nil {
			steps = rest
		}
	}
	return steps
}

// impossible returns the steps without those that drop selects. It returns nil if drop selects none
// or if the remaining history is possible.
func (k *key) impossible(steps []*step, drop func(*step) bool) []*step {
	rest := slices.DeleteFunc(slices.Clone(steps), drop)
	if len(rest) == len(steps) || k.order(rest) != porcupine.Illegal {
		return nil
	}
	return rest
}
