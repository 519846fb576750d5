package mutant

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestEditFollowsItsCodeToAnotherLayoutAndToAnotherPlaceAndFile(t *testing.T) {
	t.Parallel()
	const (
		g     = "func g(a, b int) bool {\n\tif a > b {\n\t\treturn a < b && // why\n\t\t\tb < 7\n\t}\n\treturn true\n}\n"
		other = "package p\n\nfunc f(a, b int) bool { return a < b && b < 7 }\n"
		query = "\nconst q = `SELECT a\n  FROM b`\n\nfunc (s *set[K, V]) at(i int) int {\n\tfor i := range 7 {\n\t\ts.has(i)\n\t}\n\treturn 1\n}\n"
	)
	root := t.TempDir()
	for name, source := range map[string]string{"here.go": other, "there.go": "package p\n\n" + g + query} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &Mutant{Edits: []Edit{
		{"idem.g", "a < b && b < 7", "a < b"}, {"idem.g", "if a > b", "if a > 2*b"}, {"idem.q", "SELECT a FROM b", "SELECT b"},
		{"idem.set.at", "for i := range 7", "for i := range 8"}, {"idem.set.at", "s.has(i)", ""},
	}}
	edited, err := m.Apply(root)
	want := "package p\n\nfunc g(a, b int) bool {\n\tif a > 2*b {\n\t\treturn a < b\n\t}\n\treturn true\n}\n" +
		"\nconst q = `SELECT b`\n\nfunc (s *set[K, V]) at(i int) int {\n\tfor i := range 8 {\n\t\t\n\t}\n\treturn 1\n}\n"
	if diff := cmp.Diff(map[string]string{"there.go": want}, edited); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// This test finds in a second which mutants no longer apply to the library.
func TestEveryEditStillFits(t *testing.T) {
	t.Parallel()
	for _, m := range All() {
		edited, err := m.Apply(filepath.Join(module, "..", ".."))
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		for path, source := range edited {
			if _, err := parser.ParseFile(token.NewFileSet(), path, source, 0); filepath.Ext(path) == ".go" && err != nil {
				t.Errorf("%s: what comes of it is no Go: %v", m.Name, err)
			}
		}
		for _, e := range m.Edits {
			if e.Old == e.New {
				t.Errorf("%s: an edit of %s changes nothing", m.Name, e.In)
			}
		}
	}
}
