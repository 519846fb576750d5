package mutant

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/internal/pgserver"
	"github.com/idem-go/idem/torture/fault"
)

const module = ".." // the source of the torture

func requirePrograms(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a minute or more of torture")
	}
	if _, err := pgserver.Find(os.Getenv("IDEM_TEST_POSTGRES_BIN")); err != nil {
		if os.Getenv("IDEM_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func within(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// requireFaults skips a mutant that only a leg can bring to light which this machine cannot do.
func requireFaults(t *testing.T, m *Mutant) {
	t.Helper()
	for _, l := range fault.Legs() {
		if slices.Contains(m.Faults, l.Name) && l.Possible != nil {
			t.Skip(l.Possible)
		}
	}
}

// A mutant that survives is a defect of the torture.
func TestEveryMutantIsCaught(t *testing.T) {
	requirePrograms(t)
	dir := t.TempDir()
	for _, m := range All() {
		t.Run(m.Name, func(t *testing.T) {
			requireFaults(t, &m)
			program, err := Build(within(t, 5*time.Minute), module, dir, &m)
			if err != nil {
				t.Fatal(err)
			}
			verdict, err := m.Try(within(t, 15*time.Minute), program)
			if err != nil {
				t.Fatal(err)
			}
			if !verdict.Caught {
				t.Errorf("%s: survived. Broken: %q, wanted one of %q\n%s", m.About, verdict.Rules, m.Rules, verdict.Report)
			}
			t.Logf("%s: caught in %v, by %q", m.About, verdict.Took.Round(time.Millisecond), verdict.Rules)
		})
	}
}

// What catches the mutants finds nothing wrong with the library as it is.
func TestTheLibraryPassesWhereTheMutantsAreCaught(t *testing.T) {
	requirePrograms(t)
	program, err := Build(within(t, 5*time.Minute), module, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(map[string]bool)
	for _, m := range All() {
		m.Settings = nil // those break a promise as well
		conditions := fmt.Sprint(m.Faults)
		if done[conditions] {
			continue
		}
		done[conditions] = true
		t.Run(conditions, func(t *testing.T) {
			requireFaults(t, &m)
			verdict, err := m.Once(within(t, 15*time.Minute), program, Seeds[0])
			if err != nil {
				t.Fatal(err)
			}
			if verdict.Caught {
				t.Errorf("seed %d:\n%s", verdict.Seed, verdict.Report)
			}
		})
	}
}

// The library changes, and a mutant that no longer is what it says must not pass for caught.
func TestAnEditThatNoLongerAppliesIsAnError(t *testing.T) {
	t.Parallel()
	for _, old := range []string{"this is nowhere", "func "} {
		m := &Mutant{Name: "stale", Edits: []Edit{{File: "tx.go", Old: old, New: ""}}}
		_, err := Build(within(t, time.Minute), module, t.TempDir(), m)
		if !errors.Is(err, errStale) {
			t.Errorf("%q: %v", old, err)
		}
	}
}

// What takes minutes to find out otherwise: the library has changed, and which mutants have to be looked at.
func TestEveryEditStillFits(t *testing.T) {
	t.Parallel()
	for _, m := range All() {
		edited, err := m.Apply(filepath.Join(module, ".."))
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
