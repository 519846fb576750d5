package audit

import (
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/rule"
)

// checkAnew checks that no call begins another operation that had a part in one that was cancelled meanwhile: because it has run that
// one, or has waited for it.
func (b *book) checkAnew() {
	begun := map[history.Op][]*operation{} // by the call that was the first to run them
	cancelled := map[string][]*operation{} // by key
	for _, o := range b.operations {
		if o.row == nil {
			continue
		}
		if by := o.firstRun().by; by != 0 {
			begun[by] = append(begun[by], o)
		}
		if o.row.Cancelled {
			cancelled[o.row.Key] = append(cancelled[o.row.Key], o)
		}
	}
	for by, operations := range begun {
		c := b.calls[by]
		for _, o := range operations {
			if c == nil {
				continue
			}
			for _, former := range cancelled[c.key] {
				at := former.cancelledAt()
				if former == o || at == 0 || o.firstRun().begin < at {
					continue
				}
				if former.ranBy(by, at) || c.waited > 0 && former.moves[0].At < c.waited && c.waited < at {
					b.violates(o, rule.Anew, "%v has begun it, which was part of %s when that was cancelled at %v", by, former.id, at-b.options.Start)
				}
			}
		}
	}
}

func (o *operation) firstRun() (first run) {
	for i, r := range o.runs {
		if i == 0 || r.begin < first.begin {
			first = r
		}
	}
	return first
}

func (o *operation) ranBy(call history.Op, before time.Duration) bool {
	for _, r := range o.runs {
		if r.by == call && r.begin < before {
			return true
		}
	}
	return false
}

// cancelledAt is when it is first seen to be cancelled, 0 if that is not known.
func (o *operation) cancelledAt() time.Duration {
	for _, m := range o.moves {
		if m.Cancelled {
			return m.At
		}
	}
	return 0
}
