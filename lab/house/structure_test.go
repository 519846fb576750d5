package house_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/optional"
)

// importsOf maps each package of a module that matches the pattern to the packages of this
// repository that it imports.
func importsOf(t *testing.T, dir, pattern string) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	for line := range strings.Lines(goCommand(t, dir, "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", pattern)) {
		names := strings.Fields(line)
		imports[names[0]] = slices.DeleteFunc(names[1:], func(name string) bool { return name != library && !strings.HasPrefix(name, library+"/") })
	}
	return imports
}

// Public packages import internal ones, never the other way round.
func TestInternal_ImportsNoPublicPackage(t *testing.T) {
	t.Parallel()
	checked := 0
	for name, imports := range importsOf(t, ".", "./internal/...") {
		for _, imported := range imports {
			checked++
			if !strings.HasPrefix(imported, library+"/internal/") {
				t.Errorf("%s imports %s", name, imported)
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
	for _, dir := range released(t) {
		if dir == "." || dir == "cmd/idem" {
			continue
		}
		checked++
		for name, imports := range importsOf(t, dir, "./...") {
			for _, imported := range imports {
				ofAnother := !strings.HasPrefix(imported, library+"/"+dir+"/")
				if ofAnother && (strings.Contains(imported, "/internal/") || strings.HasPrefix(imported, library+"/lab/")) {
					t.Errorf("%s imports %s", name, imported)
				}
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d modules were checked", checked)
	}
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
