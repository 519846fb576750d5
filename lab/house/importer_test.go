package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What package idem may link, besides the standard library, and why.
var linked = map[string]string{
	"github.com/idem-go/idem":          "itself",
	"github.com/jackc/pgx/v5":          "the driver that the caller's transaction belongs to",
	"github.com/jackc/puddle/v2":       "pgx's pool",
	"github.com/jackc/pgpassfile":      "pgx reads passwords with it",
	"github.com/jackc/pgservicefile":   "pgx reads service files with it",
	"golang.org/x/sync":                "pgx's pool",
	"golang.org/x/text":                "pgx prepares passwords for SCRAM with it",
	"golang.org/x/crypto":              "pgx",
	"vendor/golang.org/x/net":          "the standard library's copy",
	"vendor/golang.org/x/crypto":       "the standard library's copy",
	"vendor/golang.org/x/sys":          "the standard library's copy",
	"vendor/golang.org/x/text":         "the standard library's copy",
	"github.com/idem-go/idem/internal": "the generated queries",
}

func TestPackageIdemLinksPgxAndLittleElse(t *testing.T) {
	t.Parallel()
	for _, path := range strings.Fields(goCommand(t, ".", "list", "-deps", ".")) {
		if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") && first != "vendor" {
			continue
		}
		known := false
		for prefix := range linked {
			known = known || path == prefix || strings.HasPrefix(path, prefix+"/")
		}
		if !known {
			t.Errorf("package idem links %s: name the reason in this test, or do without", path)
		}
	}
}

// Whoever imports package idem gets these modules into their graph, whether they are used or not.
func TestImporterSeesFewModulesAndNoneOfTheHeavyOnes(t *testing.T) {
	t.Parallel()
	importer := newImporter(t)
	write(t, filepath.Join(importer, "main.go"), "package main\n\nimport _ \"github.com/idem-go/idem\"\n\nfunc main() {}\n")
	goCommand(t, importer, "mod", "tidy")
	modules := strings.Split(strings.TrimSpace(goCommand(t, importer, "list", "-m", "all")), "\n")
	t.Logf("an importer sees %d modules", len(modules))
	if len(modules) > 30 {
		t.Errorf("an importer sees %d modules, the limit is 30:\n%s", len(modules), strings.Join(modules, "\n"))
	}
	for _, module := range modules {
		for _, heavy := range []string{"testcontainers", "docker", "moby", "sqlc", "opentelemetry"} {
			if strings.Contains(module, heavy) {
				t.Errorf("an importer sees %s", module)
			}
		}
	}
}

// newImporter makes a module that requires this one, and that has nothing in it yet.
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
	write(t, filepath.Join(dir, "go.mod"), "module importer\n\ngo 1.26.0\n\nrequire github.com/idem-go/idem v0.0.0\n\nreplace github.com/idem-go/idem => "+root+"\n")
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
