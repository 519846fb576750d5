package report

import (
	"encoding/json"
	"os"
	"slices"

	"github.com/idem-go/idem/lab/torture/rule"
)

// VerdictFile is the name of the file with the verdict, in the directory of a run.
const VerdictFile = "verdict.json"

// Verdict is the result of a run, for programs.
type Verdict struct {
	Broken []rule.Rule         // without duplicates
	Failed map[string][]string // by leg: why it failed
}

// ReadVerdict reads the verdict of a finished run.
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
