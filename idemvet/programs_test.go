package idemvet_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"

	"github.com/idem-go/idem/idemvet"

	// Packages that the programs import.
	_ "github.com/cenkalti/backoff/v5"
	_ "github.com/google/uuid"
	_ "github.com/nats-io/nats.go"
	_ "github.com/twmb/franz-go/pkg/kgo"
	_ "github.com/uptrace/bun"
	_ "golang.org/x/sync/errgroup"
	_ "google.golang.org/grpc/interop/grpc_testing"
	_ "gorm.io/driver/postgres"
	_ "gorm.io/gorm"

	_ "github.com/idem-go/idem"
	_ "github.com/idem-go/idem/idemclient"
	_ "github.com/idem-go/idem/idemhttp"
	_ "github.com/idem-go/idem/idemsql"
	_ "github.com/idem-go/idem/inbox"
	_ "github.com/idem-go/idem/operation"
	_ "github.com/idem-go/idem/outbox"
)

// programs returns the packages under testdata by directory. Their imports are read as compiled
// packages.
var programs = sync.OnceValues(func() (map[string]*packages.Package, error) {
	byDir := map[string]*packages.Package{}
	pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax}, "./testdata/bad", "./testdata/good")
	for _, pkg := range pkgs {
		byDir["./testdata/"+path.Base(pkg.PkgPath)] = pkg
	}
	if packages.PrintErrors(pkgs) > 0 {
		err = errors.New("the programs do not compile")
	}
	return byDir, err
})

func loadPrograms(t *testing.T, dir string) *packages.Package {
	t.Helper()
	byDir, err := programs()
	if err != nil || byDir[dir] == nil {
		t.Fatal(err, byDir)
	}
	return byDir[dir]
}

// check returns the diagnostics of a package and the expected ones, as lines with the name of a
// rule.
func check(t *testing.T, dir string) (found, wanted map[string]bool, programs int) {
	t.Helper()
	pkg := loadPrograms(t, dir)
	graph, err := checker.Analyze(idemvet.Analyzers(), []*packages.Package{pkg}, nil)
	if err != nil {
		t.Fatal(err)
	}
	line := func(at token.Pos, rule string) string {
		p := pkg.Fset.Position(at)
		return fmt.Sprintf("%s:%d %s", p.Filename[strings.LastIndex(p.Filename, "/")+1:], p.Line, rule)
	}
	found, wanted = map[string]bool{}, map[string]bool{}
	for _, action := range graph.Roots {
		if action.Err != nil {
			t.Fatal(action.Analyzer, action.Err)
		}
		for _, d := range action.Diagnostics {
			found[line(d.Pos, action.Analyzer.Name)] = true
			t.Log(line(d.Pos, d.Message))
		}
	}
	for _, file := range pkg.Syntax {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if rule, ok := strings.CutPrefix(comment.Text, "// want "); ok {
					wanted[line(comment.Pos(), rule)] = true
				}
			}
		}
		for _, d := range file.Decls {
			programs += programsOf(d)
		}
	}
	return found, wanted, programs
}

// programsOf returns 1 if a declaration is a program of the test data, and 0 otherwise. Functions
// with a doc comment are helpers.
func programsOf(d ast.Decl) int {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && !isHelper[d.Name.Name] {
			return 1
		}
	case *ast.GenDecl:
		if d.Tok == token.VAR && len(d.Specs) == 1 {
			if spec := d.Specs[0].(*ast.ValueSpec); len(spec.Values) == 1 {
				if _, ok := spec.Values[0].(*ast.CallExpr); ok {
					return 1
				}
			}
		}
	}
	return 0
}

func TestAnalyzers_FindEachBadProgram(t *testing.T) {
	t.Parallel()
	found, wanted, programs := check(t, "./testdata/bad")
	for _, line := range slices.Sorted(maps.Keys(wanted)) {
		if !found[line] {
			t.Errorf("not found: %s", line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(found)) {
		if !wanted[line] {
			t.Errorf("found, and not wanted: %s", line)
		}
	}
	if t.Logf("%d programs", programs); programs < 50 {
		t.Errorf("%d programs", programs)
	}
}

func TestAnalyzers_AcceptEachGoodProgram(t *testing.T) {
	t.Parallel()
	found, _, programs := check(t, "./testdata/good")
	for line := range found {
		t.Errorf("found: %s", line)
	}
	if t.Logf("%d programs", programs); programs < 20 {
		t.Errorf("%d programs", programs)
	}
}

// The documentation has a heading for each rule.
func TestDocs_HaveEveryRule(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/testing-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range idemvet.Analyzers() {
		if !strings.Contains(string(page), "\n### `"+a.Name+"`\n") {
			t.Errorf("docs/testing-reference.md has no heading for %s", a.Name)
		}
	}
}

// isHelper lists functions that are part of another program.
var isHelper = map[string]bool{"step": true, "audit": true, "notify": true, "finish": true, "placeOrder": true, "pay": true, "writeOrder": true, "hand": true, "send": true,
	"sendOnce": true, "chargeAccount": true, "chargeWithoutTheKey": true, "record": true, "recordKey": true, "report": true, "refusal": true, "postCharge": true, "finishOn": true, "writeOn": true, "guess": true, "push": true, "order": true}
