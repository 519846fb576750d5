package idemotel_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocs_HaveEveryMetricWithItsUnit(t *testing.T) {
	t.Parallel()
	find := func(pattern string, files ...string) map[string]string {
		found := map[string]string{}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
				found[m[1]] = m[2]
			}
		}
		return found
	}
	documented := find(`(?m)^//\t([a-z][\w.]+) +(\S+)(?: |$)`, "doc.go")
	made := find(`(?:measure\(|count\(|\{(?:intGauge|floatGauge|intCounter|intUpDownCounter), )"([\w.]+)", "([^"]+)"`, "metrics.go", "gauges.go")
	if len(made) < 15 {
		t.Fatalf("found only %v", made)
	}
	if diff := cmp.Diff(made, documented); diff != "" {
		t.Errorf("(-made +documented)\n%s", diff)
	}
}
