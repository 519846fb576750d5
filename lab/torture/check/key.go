package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/rule"
)

type name struct{ scope, key string }

// key is everything that is known of one (scope, key).
type key struct {
	name
	options    *Options
	operations []*history.Operation // in the order in which they began
	effects    []*ledger.Effect
	record     *ledger.Record // nil if there is none
	purged     []*ledger.Record
	outers     map[history.Op][]string // by call of DoTx: what its caller wrote

	executions []*execution
	byID       map[string]*execution
	maker      map[string]*history.Operation // by execution id: the call whose fn got it
	violations []rule.Violation
}

// gather groups what is known of a run by key.
func gather(operations []*history.Operation, state *ledger.State, options *Options) []*key {
	byName := make(map[name]*key)
	of := func(scope, text string) *key {
		k, ok := byName[name{scope, text}]
		if !ok {
			k = &key{name: name{scope, text}, options: options, outers: make(map[history.Op][]string)}
			byName[k.name] = k
		}
		return k
	}
	for _, o := range operations {
		k := of(o.Scope, o.Key)
		k.operations = append(k.operations, o)
	}
	for _, e := range state.Effects {
		k := of(e.Scope, e.Key)
		k.effects = append(k.effects, e)
	}
	for _, r := range state.Records {
		of(r.Scope, r.Key).record = r
	}
	for _, p := range state.Purged {
		k := of(p.Scope, p.Key)
		k.purged = append(k.purged, p)
	}
	for _, o := range state.Outers {
		k := of(o.Scope, o.Key)
		k.outers[o.Op] = append(k.outers[o.Op], o.Part)
	}
	keys := make([]*key, 0, len(byName))
	for _, k := range byName {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b *key) int { return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.key, b.key)) })
	return keys
}

// check returns the violations of the key, and the number of steps of the model that explain its
// history. complete is false if the history is too large for the model.
func (k *key) check() (violations []rule.Violation, steps int, complete bool) {
	if k.scope == history.CommitScope {
		k.checkTold()
		return k.violations, 0, true
	}
	k.trace()
	k.applyRules()
	complete = true
	// After a violation the model usually refuses the history too, which would only repeat it.
	if len(k.violations) == 0 {
		steps, complete = k.accept()
	}
	return k.violations, steps, complete
}

func (k *key) violate(broken rule.Rule, detail string, involved ...*history.Operation) {
	k.violations = append(k.violations, rule.Violation{
		Rule: broken, Scope: k.scope, Key: k.name.key, Detail: detail, History: describe(involved, k.options.Start),
	})
}

// describe formats operations in the order in which they began.
func describe(operations []*history.Operation, start time.Duration) []string {
	operations = slices.DeleteFunc(slices.Clone(operations), func(o *history.Operation) bool { return o == nil })
	slices.SortFunc(operations, func(a, b *history.Operation) int { return cmp.Compare(a.Begin, b.Begin) })
	operations = slices.Compact(operations)
	var lines []string
	for _, o := range operations {
		end := "never"
		if o.End != history.Forever {
			end = fmt.Sprintf("%.3f", milliseconds(o.End-start))
		}
		lines = append(lines, fmt.Sprintf("[%.3f, %s] ms  %v", milliseconds(o.Begin-start), end, o))
	}
	return lines
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
