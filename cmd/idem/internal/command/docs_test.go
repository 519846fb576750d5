package command_test

import (
	"os"
	"strings"
	"testing"
)

func TestDocs_ListEveryCommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range commands(t) {
		if !strings.Contains(string(text), "`idem "+name) {
			t.Errorf("the command %s is not in docs/cli.md", name)
		}
	}
}
