package idemtest_test

import (
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
)

func TestPackage_IsLinkedByNoOther(t *testing.T) {
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
