package command_test

import (
	"os"
	"strings"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

func TestDocs_ListEveryCommandAndCheck(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "## doctor")
	for _, check := range append(doctor.Names(), doctor.VerifyNames()...) {
		if !strings.Contains(rest, "`"+check+"`") {
			t.Errorf("the check %s is not in docs/cli.md", check)
		}
	}
	for _, name := range commands(t) {
		if !strings.Contains(string(text), "`idem "+name) {
			t.Errorf("the command %s is not in docs/cli.md", name)
		}
	}
}
