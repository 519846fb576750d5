package idemclient_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A program that calls a service should not have to take a database driver for it. The other
// packages have the name of a header and the form of a key, and may import no more than this one.
func TestPackage_NeedsOnlyTheStandardLibrary(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"github.com/idem-go/idem/internal/display", "github.com/idem-go/idem/internal/keyheader", "github.com/idem-go/idem/idemclient"}
	if diff := cmp.Diff(want, strings.Fields(string(out))); diff != "" {
		t.Errorf("what it is made of (-want +got):\n%s", diff)
	}
}
