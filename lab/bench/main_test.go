package main

import (
	"os"
	"path"
	"strings"
	"testing"
)

// What a run that is cut short leaves beside the results is not to be committed.
func TestResultsOfARunThatWasCutShortAreIgnored(t *testing.T) {
	t.Parallel()
	ignored, err := os.ReadFile("../../.gitignore")
	if err != nil {
		t.Fatal(err)
	}
	for pattern := range strings.Lines(string(ignored)) {
		if ok, _ := path.Match(strings.TrimSpace(pattern), partial("results.json")); ok {
			return
		}
	}
	t.Errorf("%s is not in .gitignore", partial("results.json"))
}
