package idemtest_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docs/testing.md lists the programs with what each of them breaks, in their order.
func TestProgramsAreListedInTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "## The programs")
	var bad, good []string
	for _, row := range regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([^`]+)` \\| [^|]+ \\|$").FindAllStringSubmatch(list, -1) {
		bad = append(bad, row[1]+": "+row[2])
	}
	for _, row := range regexp.MustCompile("(?m)^- (.+)$").FindAllStringSubmatch(list, -1) {
		good = append(good, row[1])
	}
	if diff := cmp.Diff(names(bad), names(badPrograms())); diff != "" {
		t.Errorf("bad ones (-docs +tests):\n%s", diff)
	}
	if diff := cmp.Diff(names(good), names(goodPrograms())); diff != "" {
		t.Errorf("good ones (-docs +tests):\n%s", diff)
	}
	t.Logf("%d bad and %d good", len(bad), len(good))
}

func names(list []string) []string { return slices.Sorted(slices.Values(list)) }

func badPrograms() (all []string) {
	for _, c := range badHandlers {
		all = append(all, c.name+": "+c.breaks)
	}
	for _, c := range badFuncs {
		all = append(all, c.name+": "+c.breaks)
	}
	for _, c := range badConsumers {
		all = append(all, c.name+": "+c.breaks)
	}
	for _, c := range badOperations {
		all = append(all, c.name+": "+c.breaks)
	}
	return all
}

func goodPrograms() (all []string) {
	for _, c := range goodHandlers {
		all = append(all, c.name)
	}
	for _, c := range goodFuncs {
		all = append(all, c.name)
	}
	for _, c := range goodConsumers {
		all = append(all, c.name)
	}
	for _, c := range goodOperations {
		all = append(all, c.name)
	}
	return all
}

// Every promise that the code can name is explained in docs/testing.md, in the words of the report.
func TestPromisesAreExplainedInTheDocs(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../docs/testing.md")
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
			if row := "| `" + p[1] + "` | " + p[2] + " | "; !strings.Contains(string(docs), row) {
				t.Errorf("the docs lack %s", row)
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d promises", found)
	}
}
