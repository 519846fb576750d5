// Package check decides whether a run of calls kept the promises of the library. Its only sources
// are the history of the calls and the final state of the database. It checks each (scope, key)
// separately:
//
//   - gather collects everything that is known of a key. execution.go joins all observations of one
//     execution: its effect, its record, the answer to the call that made it, and every replay.
//   - rule.go checks the rules that do not depend on the order of the answers. For example, an
//     error means that nothing was committed, a replay equals the committed response, and retention
//     periods do not overlap.
//   - model.go compares the order of events with the specification of package model. Some behavior
//     of the specification must give the callers the same answers, event by event. A call that
//     never returned may have committed at any time after its fn ran, or not at all.
//
// Package ledger finds the errors that the database alone shows, such as an effect without a
// record. Package check adds those findings to its result.
package check

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Options are the facts about a run that are not in its history.
type Options struct {
	// Start is when the run began, by the clock of package history. Printed times are relative to
	// it.
	Start time.Duration

	// ClockMoved are the times around the jumps of the database's clock. The retention period of an
	// execution during these times is not judged.
	ClockMoved []Interval

	// Undisturbed reports that no fault was injected. Then no session of a broken connection can
	// have locked a key.
	Undisturbed bool

	// Losses are failovers to a standby that lagged behind. An execution that was acknowledged
	// shortly before may be lost, but only if its key and its effect are lost together.
	Losses []Interval
}

// Interval is a period by the clock of package history.
type Interval struct{ From, To time.Duration }

func (i Interval) meets(o *history.Operation) bool { return o.Begin <= i.To && o.End >= i.From }

// Run checks a run from the events of its workers and the final state of the database.
func Run(events []history.Event, state *ledger.State, options Options) (*rule.Result, error) {
	operations, err := history.Operations(events)
	if err != nil {
		return nil, err
	}
	result := judge(operations, state, &options)
	for _, e := range events {
		if e.Leaks != "" {
			result.Violations = append(result.Violations, rule.Violation{Rule: rule.NoGoroutine, Detail: e.Leaks})
		}
	}
	return result, nil
}

// ofClock reports whether the rule cannot be judged if the clock of the database was moved.
func ofClock(r rule.Rule) bool { return r == rule.Record || r == rule.Retained || r == rule.Grace }

// judge checks all keys, in parallel, and adds the findings of package ledger.
func judge(operations []*history.Operation, state *ledger.State, options *Options) *rule.Result {
	keys := gather(operations, state, options)
	r := &rule.Result{Calls: len(operations), Keys: len(keys)}
	for _, f := range state.Findings {
		if !ofClock(f.Rule) || len(options.ClockMoved) == 0 {
			r.Violations = append(r.Violations, f)
		}
	}
	queue := make(chan *key)
	var checkers sync.WaitGroup
	var mu sync.Mutex
	for range runtime.GOMAXPROCS(0) {
		checkers.Go(func() {
			for k := range queue {
				violations, steps, complete := k.check()
				mu.Lock()
				r.Violations = append(r.Violations, violations...)
				if r.Steps += steps; steps > 0 {
					r.Histories++
				}
				if !complete {
					r.Unchecked = append(r.Unchecked, fmt.Sprintf("scope %s, key %s", k.scope, k.name.key))
				}
				mu.Unlock()
			}
		})
	}
	for _, k := range keys {
		queue <- k
	}
	close(queue)
	checkers.Wait()
	return r
}

type name struct{ scope, key string }

// key is everything that is known of one (scope, key).
type key struct {
	name
	options    *Options
	operations []*history.Operation // sorted by the beginning of the calls
	effects    []*ledger.Effect
	record     *ledger.Record // nil if there is none
	purged     []*ledger.Record
	outers     map[history.Op][]string // rows that the caller of DoTx wrote, by the call of DoTx

	executions []*execution
	byID       map[string]*execution
	maker      map[string]*history.Operation // the call whose fn got the execution id, by that id
	violations []rule.Violation
}

// gather groups the events, effects and records of a run by key.
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
