package house_test

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/optional"
)

// layered lists the packages between the API and the database. internal/canon is not among them:
// its values, arrays and objects contain one another.
var layered = []string{
	".", "operation", "internal/txn", "internal/db", "internal/roundtrip", "purge", "inbox", "inbox/pull", "outbox", "adapter/direct", "webhook",
	"idemtest", "idemsql", "stats",
}

func TestPackages_FilesUseEachOtherInOneDirection(t *testing.T) {
	t.Parallel()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, dir := range layered {
		args = append(args, "./"+dir)
	}
	compiled := map[string]string{}
	for line := range strings.Lines(goCommand(t, ".", args...)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[path] = file
	}
	for _, dir := range layered {
		uses := usesBetweenFiles(t, dir, compiled)
		if len(uses) == 0 {
			t.Errorf("%s: no file uses another, so the test checks nothing", dir)
		}
		for file := range uses {
			if circle := pathBetween(uses, file, file, map[string]bool{}); circle != nil {
				t.Errorf("%s: %s", dir, strings.Join(circle, " uses "))
			}
		}
	}
}

func TestRootPackage_HasAtMost16Files(t *testing.T) {
	t.Parallel()
	files := sourceFiles(t, ".")
	if len(files) > 16 {
		t.Errorf("the package has %d source files, the limit is 16: %q", len(files), files)
	}
}

// Public packages import internal ones, never the other way round.
func TestInternal_ImportsNoPublicPackage(t *testing.T) {
	t.Parallel()
	const module = "github.com/idem-go/idem"
	checked := 0
	for line := range strings.Lines(goCommand(t, ".", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./internal/...")) {
		names := strings.Fields(line)
		for _, imported := range names[1:] {
			checked++
			if (imported == module || strings.HasPrefix(imported, module+"/")) && !strings.HasPrefix(imported, module+"/internal/") {
				t.Errorf("%s imports %s", names[0], imported)
			}
		}
	}
	if checked == 0 {
		t.Error("the test has checked no import")
	}
}

// A module may be built with another version of the root module than the one in its go.mod. So it
// must not import internal packages of the root module. cmd/idem is exempt: no module imports a
// program, and go install cmd/idem@v builds it with exactly the version that its go.mod names.
func TestModules_ImportNoInternalPackageOfAnother(t *testing.T) {
	t.Parallel()
	checked := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		exempt := slices.Contains([]string{"lab", "tools", "example", "cmd/idem"}, path)
		switch {
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || exempt):
			return filepath.SkipDir
		case entry.Name() != "go.mod" || path == "go.mod":
			return nil
		}
		checked++
		dir := filepath.Dir(path)
		own := library + "/" + filepath.ToSlash(dir) + "/"
		for line := range strings.Lines(goCommand(t, dir, "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")) {
			names := strings.Fields(line)
			for _, imported := range names[1:] {
				ofAnother := strings.HasPrefix(imported, library+"/") && !strings.HasPrefix(imported, own)
				if ofAnother && (strings.Contains(imported, "/internal/") || strings.HasPrefix(imported, library+"/lab/")) {
					t.Errorf("%s imports %s", names[0], imported)
				}
			}
		}
		return nil
	})
	if err != nil || checked < 5 {
		t.Errorf("%d modules were checked, %v", checked, err)
	}
}

// A reader sees the listing of the root before anything else, hidden entries included.
func TestRoot_HasAtMost45Entries(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if name := entry.Name(); name != ".git" && name != "bin" { // make builds into bin
			names = append(names, name)
		}
	}
	if len(names) > 45 {
		t.Errorf("the root has %d entries, the limit is 45: %q", len(names), names)
	}
}

// sourceFiles returns the files of a package that are built on this platform.
func sourceFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(name string) bool {
		built, err := build.Default.MatchFile(dir, filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.HasSuffix(name, "_test.go") || !built
	})
}

// usesBetweenFiles maps each file of a package to the files whose declarations it uses.
func usesBetweenFiles(t *testing.T, dir string, compiled map[string]string) map[string][]string {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range sourceFiles(t, dir) {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	imported := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imported}).Check(dir, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string][]string{}
	for ident, object := range info.Uses {
		user, used := fset.File(ident.Pos()).Name(), ""
		if object.Pkg() == pkg {
			used = fset.File(object.Pos()).Name()
		}
		if used != "" && used != user && !slices.Contains(uses[user], used) {
			uses[user] = append(uses[user], used)
		}
	}
	return uses
}

// pathBetween returns a path from one file to another along uses, or nil if there is none.
func pathBetween(uses map[string][]string, from, to string, tried map[string]bool) []string {
	for _, next := range uses[from] {
		if next == to {
			return []string{from, to}
		}
		if tried[next] {
			continue
		}
		tried[next] = true
		if path := pathBetween(uses, next, to, tried); path != nil {
			return append([]string{from}, path...)
		}
	}
	return nil
}

// TestRepository_HasNoLargeFiles fails if a program or another large file is committed by accident.
func TestRepository_HasNoLargeFiles(t *testing.T) {
	t.Parallel()
	optional.Program(t, "git")
	list, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("needs a git repository: ", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		if info, err := os.Stat(name); err == nil && info.Size() > 1<<20 {
			t.Errorf("%s has %d bytes: remove it, or keep it elsewhere", name, info.Size())
		}
	}
}
