package idemtest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/testing-reference.md explains every promise that the code can name, in the words of the
// report.
func TestPromises_AreExplainedInTheDocs(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../docs/testing-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range []string{"promise.go", "consumer.go", "operation.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range regexp.MustCompile(`promise\{"([^"]+)", "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
			found++
			if row := "`" + p[1] + "` | " + p[2] + " | "; !strings.Contains(string(docs), row) {
				t.Errorf("the docs lack %s", row)
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d promises", found)
	}
}
