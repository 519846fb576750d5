package audit

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkAnew checks that a call does not begin a second operation for its key after it took part in
// one that was canceled. A call takes part in an operation if it ran it or waited for it.
func (b *book) checkAnew() {
	// The row of an operation does not say which call created it. The call of its first run did.
	begun := map[history.Op][]*operation{} // by the call that began its first run
	canceled := map[string][]*operation{}  // by key
	for _, o := range b.operations {
		if o.row == nil {
			continue
		}
		if by := o.firstRun().by; by != 0 {
			begun[by] = append(begun[by], o)
		}
		if o.row.Canceled {
			canceled[o.row.Key] = append(canceled[o.row.Key], o)
		}
	}
	for by, operations := range begun {
		c := b.calls[by]
		for _, o := range operations {
			if c == nil {
				continue
			}
			for _, former := range canceled[c.key] {
				at := former.canceledAt()
				if former == o || at == 0 || o.firstRun().begin < at {
					continue
				}
				if former.ranBy(by, at) || c.waited > 0 && former.moves[0].At < c.waited && c.waited < at {
					b.violates(o, rule.Anew, "%v has begun it, which was part of %s when that was canceled at %v", by, former.id, at-b.options.Start)
				}
			}
		}
	}
}

// checkAwaited checks that a call which waited for an operation that was then canceled is not
// answered with another operation of the same key.
func (b *book) checkAwaited() {
	canceled := map[string][]*operation{} // by key
	for _, o := range b.operations {
		if o.row != nil && o.row.Canceled && o.row.State == "undone" && len(o.moves) > 0 {
			canceled[o.row.Key] = append(canceled[o.row.Key], o)
		}
	}
	for _, o := range b.operations {
		for _, a := range o.answers {
			c := b.calls[a.Op]
			if c == nil || c.waited == 0 {
				continue
			}
			for _, former := range canceled[c.key] {
				begun, ended := former.moves[0].At, former.moves[len(former.moves)-1].At
				if former != o && begun+clocks < c.waited && c.waited < ended-clocks {
					b.violates(o, rule.Awaited, "%v has waited for %s at %v, and was told of this one", a.Op, former.id, c.waited-b.options.Start)
				}
			}
		}
	}
}

// firstRun returns the earliest run, or the zero run if there is none.
func (o *operation) firstRun() (first run) {
	for i, r := range o.runs {
		if i == 0 || r.begin < first.begin {
			first = r
		}
	}
	return first
}

// ranBy reports whether the call began a run of o before the given time.
func (o *operation) ranBy(call history.Op, before time.Duration) bool {
	for _, r := range o.runs {
		if r.by == call && r.begin < before {
			return true
		}
	}
	return false
}

// canceledAt returns the time of the first move that shows the operation as canceled, or 0 if there
// is none.
func (o *operation) canceledAt() time.Duration {
	for _, m := range o.moves {
		if m.Canceled {
			return m.At
		}
	}
	return 0
}
