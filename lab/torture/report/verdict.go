package report

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/idem-go/idem/lab/torture/rule"
)

// VerdictFile is where a run leaves its verdict, in its folder.
const VerdictFile = "verdict.json"

// Verdict is what came of a run, for programs.
type Verdict struct {
	Broken []rule.Rule         // each once
	Failed map[string][]string // by leg, what of it did not work
}

// ReadVerdict reads the verdict of a run that is over.
func ReadVerdict(path string) (v Verdict, err error) {
	encoded, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(encoded, &v)
}

func (v *Verdict) add(leg *Leg) {
	if len(leg.Failures) > 0 {
		if v.Failed == nil {
			v.Failed = make(map[string][]string)
		}
		v.Failed[leg.Name] = leg.Failures
	}
	if leg.Result == nil {
		return
	}
	for _, violation := range leg.Violations {
		if !slices.Contains(v.Broken, violation.Rule) {
			v.Broken = append(v.Broken, violation.Rule)
		}
	}
}

func (v *Verdict) write(path string) error {
	encoded, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(encoded, '\n'), 0o644)
}
