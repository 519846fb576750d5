package mutant_test

import (
	"bufio"
	"bytes"
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

	"github.com/idem-go/idem/lab/torture/mutant"
)

// TestMutants_Compile applies every edit, and type-checks each package that a mutant edits. A mutant
// that does not compile would otherwise be noticed only when the torture builds it.
func TestMutants_Compile(t *testing.T) {
	t.Parallel()
	const root = "../../.."
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
	for _, m := range mutant.All() {
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
