package idemtest_test

import (
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
)

// What a program links that imports this package, besides the standard library.
var linked = []string{
	"github.com/idem-go/idem", "github.com/jackc/pgx/v5", "github.com/jackc/puddle/v2", "github.com/jackc/pgpassfile",
	"github.com/jackc/pgservicefile", "golang.org/x/sync", "golang.org/x/text",
	"github.com/pressly/goose/v3", "github.com/mfridman/interpolate", "github.com/sethvargo/go-retry", "go.uber.org/multierr", // of package migrations
}

func TestImporterOfThisPackageLinksPgxAndGoose(t *testing.T) {
	t.Parallel()
	out, err := goList(".")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for module := range strings.FieldsSeq(out) {
		if !slices.Contains(linked, module) {
			t.Errorf("it links %s", module)
		}
	}
}

func TestNoOtherPackageLinksThisOne(t *testing.T) {
	t.Parallel()
	out, err := osexec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Deps}} {{.}}{{end}}`, "../...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if packages := strings.Fields(line); !strings.Contains(packages[0], "/idemtest") && slices.Contains(packages, "github.com/idem-go/idem/idemtest") {
			t.Errorf("%s links it", packages[0])
		}
	}
}

// goList returns the modules that a package needs, one to a line.
func goList(dir string) (string, error) {
	out, err := osexec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", dir).CombinedOutput()
	return string(out), err
}
