package idemhttp_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A program without operations does not link package operation, neither through package idem nor
// through this one.
func TestPackage_DoesNotImportOperation(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".", "github.com/idem-go/idem").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "github.com/idem-go/idem/operation") {
		t.Error("package operation is linked")
	}
}
