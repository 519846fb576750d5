package check

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/lab/torture/history"
	"github.com/idem-go/idem/lab/torture/ledger"
	"github.com/idem-go/idem/lab/torture/rule"
)

// Result is the result of a check.
type Result struct {
	Violations []Violation
	Unchecked  []string // keys for which the search for an order timed out
	Keys       int
	Freed      []Freed // the longest first
	Purged     int     // purged records
	Lost       int     // acknowledged executions that a failover lost with their records
	Tally      Tally
	Took       time.Duration
}

// Files checks a run from its files: the histories of the workers, and the final state of the
// database. It reads the run in portions, each with the keys of some shards, so that its memory
// does not depend on the length of the run.
func Files(histories []string, state string, options Options) (*Result, error) {
	return files(histories, state, portionSize, options)
}

func files(histories []string, state string, size int64, options Options) (_ *Result, err error) {
	begin := time.Now()
	result := &Result{Tally: newTally()}
	portions, remove, err := divide(histories, state, size)
	if remove != nil {
		defer func() { err = errors.Join(err, remove()) }()
	}
	if err != nil {
		return nil, err
	}
	for _, p := range portions {
		operations, err := history.Operations(p.histories)
		if err != nil {
			return nil, err
		}
		rows, err := readState(p.state)
		if err != nil {
			return nil, err
		}
		result.add(operations, rows, &options)
	}
	if err := result.Tally.addExits(histories); err != nil {
		return nil, err
	}
	for _, leaks := range result.Tally.Leaks {
		result.Violations = append(result.Violations, Violation{Rule: rule.NoGoroutine, Detail: leaks})
	}
	slices.SortFunc(result.Freed, func(a, b Freed) int { return cmp.Compare(b.After, a.After) })
	result.Took = time.Since(begin)
	return result, nil
}

func readState(paths []string) ([]ledger.Row, error) {
	var rows []ledger.Row
	for _, path := range paths {
		err := history.Lines(path, func(line []byte) error {
			row, err := history.Decode[ledger.Row](line)
			rows = append(rows, row)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// ofClock reports whether the rule cannot be judged if the clock of the database was moved.
func ofClock(r rule.Rule) bool { return r == rule.Record || r == rule.Retained || r == rule.Grace }

// add checks the keys of one portion, in parallel, and adds the findings of package ledger.
func (r *Result) add(operations []*history.Operation, rows []ledger.Row, options *Options) {
	for _, o := range operations {
		r.Tally.add(o)
	}
	for _, row := range rows {
		if f := row.Finding; f != nil && !(ofClock(f.Rule) && len(options.ClockMoved) > 0) {
			r.Violations = append(r.Violations, Violation{Rule: f.Rule, Scope: f.Scope, Key: f.Key, Detail: f.Detail})
		}
	}
	keys := gather(operations, rows, options)
	r.Keys += len(keys)
	queue := make(chan *key)
	var checkers sync.WaitGroup
	var mu sync.Mutex
	for range runtime.GOMAXPROCS(0) {
		checkers.Go(func() {
			for k := range queue {
				violations, complete := k.check()
				mu.Lock()
				r.Violations = append(r.Violations, violations...)
				r.Lost += k.lost()
				r.Purged += len(k.purged)
				r.Freed = append(r.Freed, k.freed()...)
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
}
