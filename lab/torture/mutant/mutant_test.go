package mutant

import (
	"errors"
	"path/filepath"
	"testing"
)

const module = ".." // the source of the torture

// A mutant that no longer applies must be an error and must not count as caught.
func TestAnEditThatNoLongerAppliesIsAnError(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]Edit{
		"a function that has gone": {"idem.nowhere", "r.State", "x"},
		"a package that has gone":  {"internal/nowhere.f", "r.State", "x"},
		"code that has gone":       {"idem.answerFrom", "this.is.nowhere", "x"},
		"code that is there twice": {"idem.answerFrom", "key", "x"},
		"a part of an expression":  {"idem.answerFrom", "SameHash", "x"},
		"a line of a statement":    {"idem.answerFrom", "if err := r.Open(own, sealer); err != nil {", "x"},
		"SQL that has gone":        {"internal/db.ClaimSQL", "DELETE FROM idem.records", "x"},
		"a table that has gone":    {"migrations/00001_records.sql", "CREATE TABLE nowhere", "x"},
		"a file that has gone":     {"migrations/00000_nowhere.sql", "CREATE TABLE", "x"},
	} {
		_, err := (&Mutant{Name: "stale", Edits: []Edit{e}}).Apply(filepath.Join(module, "..", ".."))
		if !errors.Is(err, errStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
