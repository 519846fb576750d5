package house_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ofPgx lists the modules that pgx itself links. The table does not repeat them.
var ofPgx = []string{
	"github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "github.com/jackc/puddle/v2", "golang.org/x/sync", "golang.org/x/text",
}

const driver = "github.com/jackc/pgx/v5"

// Every module that a package links is also linked into the programs that import the package.
func TestVersioning_ListsTheModulesThatAPackageLinks(t *testing.T) {
	t.Parallel()
	documented := rowsOf(t, "docs/portability.md", "| package | links |")
	for name, want := range documented {
		if slices.Contains(want, driver) {
			want = append(want, ofPgx...)
		}
		for _, module := range modulesOf(t, name) {
			if !slices.Contains(want, module) {
				t.Errorf("package %s links %s, which docs/portability.md does not list", name, module)
			}
			want = slices.DeleteFunc(want, func(w string) bool { return w == module })
		}
		if len(want) > 0 {
			t.Errorf("package %s does not link %v any more", name, want)
		}
	}
	for _, dir := range released(t) {
		if _, ok := documented[cmp.Or(strings.TrimPrefix(dir, "."), "idem")]; !ok && !strings.HasPrefix(dir, "cmd/") {
			t.Errorf("docs/portability.md does not list the modules that %s links", dir)
		}
	}
}

// rowsOf reads the table with the given head. It maps each name in backticks of the first column to
// the names in backticks of the second.
func rowsOf(t *testing.T, file, head string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), head)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[string][]string{}
	named := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		for _, name := range named.FindAllStringSubmatch(cells[1], -1) {
			rows[name[1]] = nil
			for _, value := range named.FindAllStringSubmatch(cells[2], -1) {
				rows[name[1]] = append(rows[name[1]], value[1])
			}
		}
	}
	if !ok || len(rows) == 0 {
		t.Fatalf("%s has no table %s", file, head)
	}
	return rows
}

// modulesOf returns the modules that a package links, except those of this repository.
func modulesOf(t *testing.T, name string) []string {
	t.Helper()
	dir := name
	if name == "idem" {
		dir = "."
	}
	modules := strings.Fields(goCommand(t, dir, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."))
	slices.Sort(modules)
	return slices.DeleteFunc(slices.Compact(modules), func(module string) bool {
		return module == "github.com/idem-go/idem" || strings.HasPrefix(module, "github.com/idem-go/idem/")
	})
}

// newImporter creates an empty module that requires this one.
func newImporter(t *testing.T) (dir string) {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), `module importer

go 1.26.0

require github.com/idem-go/idem v0.0.0

replace github.com/idem-go/idem => `+root+"\n")
	write(t, filepath.Join(dir, "go.sum"), string(sum))
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}
