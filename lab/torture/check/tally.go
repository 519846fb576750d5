package check

import (
	"github.com/idem-go/idem/lab/torture/history"
)

// Tally counts calls, runs and outcomes.
type Tally struct {
	Operations int
	ByVerb     map[string]map[history.Outcome]int
	ByFn       map[string]map[history.Outcome]int
	Rejected   int // of the executed calls
	Runs       int // of functions
	Leaks      []string
	Exits      int   // workers that ended in order
	Memory     int64 // of the largest of these workers, in bytes
}

func newTally() Tally {
	return Tally{ByVerb: make(map[string]map[history.Outcome]int), ByFn: make(map[string]map[history.Outcome]int)}
}

func (t *Tally) add(o *history.Operation) {
	t.Operations++
	t.Runs += len(o.Runs)
	if o.Outcome == history.Executed && o.Rejected {
		t.Rejected++
	}
	count(t.ByVerb, o.Verb, o.Outcome)
	count(t.ByFn, o.Fn, o.Outcome)
}

func count(in map[string]map[history.Outcome]int, what string, outcome history.Outcome) {
	if in[what] == nil {
		in[what] = make(map[history.Outcome]int)
	}
	in[what][outcome]++
}

// addExits adds the exit events of the workers. A worker that was killed has none.
func (t *Tally) addExits(histories []string) error {
	for _, path := range histories {
		exit, err := history.Last(path)
		if err != nil {
			return err
		}
		if exit == nil || exit.Kind != history.KindExit {
			continue
		}
		t.Exits++
		t.Memory = max(t.Memory, exit.Memory)
		if exit.Leaks != "" {
			t.Leaks = append(t.Leaks, exit.Leaks)
		}
	}
	return nil
}
