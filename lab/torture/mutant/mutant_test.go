package mutant

import (
	"bufio"
	"bytes"
	"errors"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.." // of the repository

// A mutant that no longer applies must be an error and must not count as caught.
func TestAnEditThatNoLongerAppliesIsAnError(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]Edit{
		"a function that has gone": {"idem.nowhere", "r.State", "x"},
		"a package that has gone":  {"internal/nowhere.f", "r.State", "x"},
		"code that has gone":       {"idem.answerFrom", "this.is.nowhere", "x"},
		"code that is there twice": {"idem.answerFrom", "key", "x"},
		"a part of a word":         {"idem.answerFrom", "SameHas", "x"},
		"SQL that has gone":        {"internal/db.ClaimSQL", "DELETE FROM idem.records", "x"},
		"a table that has gone":    {"migrations/00001_records.sql", "CREATE TABLE nowhere", "x"},
		"a file that has gone":     {"migrations/00000_nowhere.sql", "CREATE TABLE", "x"},
	} {
		_, err := (&Mutant{Name: "stale", Edits: []Edit{e}}).Apply(root)
		if !errors.Is(err, errStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMutants_Compile applies every edit, and type-checks each package that a mutant edits. A mutant
// that does not compile would otherwise be noticed only when the torture builds it.
func TestMutants_Compile(t *testing.T) {
	t.Parallel()
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		path, file, _ := strings.Cut(lines.Text(), " ")
		exports[path] = file
	}
	files := token.NewFileSet()
	packages := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, m := range All() {
		edited, err := m.Apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		for _, e := range m.Edits {
			if e.Old == e.New {
				t.Errorf("%s: an edit of %s changes nothing", m.Name, e.In)
			}
		}
		dirs := map[string]bool{}
		for path := range edited {
			if strings.HasSuffix(path, ".go") {
				dirs[filepath.Dir(path)] = true
			}
		}
		for dir := range dirs {
			source, err := build.ImportDir(filepath.Join(root, dir), 0)
			if err != nil {
				t.Fatal(err)
			}
			var parsed []*ast.File
			for _, name := range source.GoFiles {
				var text any
				if mutated, ok := edited[filepath.Join(dir, name)]; ok {
					text = mutated
				}
				file, err := parser.ParseFile(files, filepath.Join(root, dir, name), text, parser.SkipObjectResolution)
				if err != nil {
					t.Errorf("%s: %v", m.Name, err)
				}
				parsed = append(parsed, file)
			}
			config := types.Config{Importer: packages, Error: func(err error) { t.Errorf("%s: %v", m.Name, err) }}
			_, _ = config.Check(dir, files, parsed, nil)
		}
	}
}
