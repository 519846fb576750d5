package idemclient_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Whoever calls a service should not have to take a database driver for it.
func TestPackageImportsOnlyTheStandardLibrary(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if packages := strings.Fields(string(out)); len(packages) != 1 {
		t.Errorf("it imports %v", packages)
	}
}
