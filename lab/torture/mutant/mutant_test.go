package mutant

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const module = ".." // the source of the torture

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// A promise of which no mutant is tried before every change lands is one that can be forgotten.
func TestTheSampleHasEveryPromiseThatIsSoonFoundBroken(t *testing.T) {
	t.Parallel()
	sample := Sample()
	for _, m := range All() {
		tried := slices.ContainsFunc(sample, func(s Mutant) bool { return s.Rules[0] == m.Rules[0] })
		if !tried && !m.Slow {
			t.Errorf("%s: none of the sample breaks %q", m.Name, m.Rules[0])
		}
	}
}

// The library changes, and a mutant that no longer is what it says must not pass for caught.
func TestAnEditThatNoLongerAppliesIsAnError(t *testing.T) {
	t.Parallel()
	for _, old := range []string{"this is nowhere", "func "} {
		m := &Mutant{Name: "stale", Edits: []Edit{{File: "tx.go", Old: old, New: ""}}}
		_, err := Build(within(t, 10*time.Minute), module, t.TempDir(), m)
		if !errors.Is(err, errStale) {
			t.Errorf("%q: %v", old, err)
		}
	}
}

func TestEditFollowsItsCodeToAnotherLayoutAndToAnotherFileOfItsPackage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, source := range map[string]string{
		"here.go":  "package p\n\nfunc f() {}\n",
		"there.go": "package p\n\nfunc g(a, b int) bool {\n\treturn a < b && // why\n\t\tb < 7\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &Mutant{Edits: []Edit{{"here.go", "\treturn a < b && b < 7\n", "\treturn a < b\n"}}}
	edited, err := m.Apply(root)
	if want := "package p\n\nfunc g(a, b int) bool {\n\treturn a < b\n}\n"; err != nil || len(edited) != 1 || edited["there.go"] != want {
		t.Errorf("%q, %v", edited, err)
	}
	m.Edits[0].Old = "return b < a"
	if _, err := m.Apply(root); !errors.Is(err, errStale) {
		t.Errorf("code that has gone: %v", err)
	}
}

// What takes minutes to find out otherwise: the library has changed, and which mutants have to be looked at.
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
				t.Errorf("%s: an edit of %s changes nothing", m.Name, e.File)
			}
		}
	}
}

func TestMutantsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	var names []string
	for _, m := range All() {
		if m.Name == "" || m.About == "" || len(m.Rules) == 0 || len(m.Edits)+len(m.Settings) == 0 {
			t.Errorf("%+v", m)
		}
		if slices.Contains(names, m.Name) {
			t.Errorf("two are called %s", m.Name)
		}
		names = append(names, m.Name)
		if found, err := Find(m.Name); err != nil || found.About != m.About {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	if _, err := Find("nobody"); err == nil {
		t.Error("a mutant that does not exist was found")
	}
}
