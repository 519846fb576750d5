package mutant_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem/lab/torture/mutant"
)

var update = flag.Bool("update", false, "write docs/evidence.md")

const evidenceHead = `# Evidence

This page is generated: ` + "`make generate`" + ` writes it from docs/evidence.tsv and from the mutants of lab/torture.

The first part names, for each promise of the documentation, the tests that guard it. The second part names, for each
rule of the torture test, the broken libraries (mutants) that must be found by that rule. ` + "`make torture/mutants`" + `
builds each of them and fails if one is not found.

[The model](model.md) has the protocol in all its states, and every history of the torture must be a behavior of it.
`

// TestEvidence_PageIsUpToDate fails if the page differs from its data, or if a test in the data does not exist.
func TestEvidence_PageIsUpToDate(t *testing.T) {
	t.Parallel()
	const root = "../../../"
	data, err := os.ReadFile(root + "docs/evidence.tsv")
	if err != nil {
		t.Fatal(err)
	}
	tests := testNames(t, root)
	pages := map[string][]string{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			t.Fatalf("docs/evidence.tsv: a line needs promise, page and tests: %q", line)
		}
		page, _, _ := strings.Cut(fields[1], "#")
		for _, name := range strings.Fields(fields[2]) {
			if !tests[name] {
				t.Errorf("docs/evidence.tsv: there is no test %s (%s)", name, fields[0])
			}
		}
		link := strings.TrimPrefix(fields[1], "docs/")
		if link == fields[1] {
			link = "../" + link
		}
		pages[page] = append(pages[page], fmt.Sprintf("- [%s](%s): `%s`\n", fields[0], link, strings.Join(strings.Fields(fields[2]), "`, `")))
	}
	var b strings.Builder
	b.WriteString(evidenceHead)
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		fmt.Fprintf(&b, "\n## %s\n\n%s", page, strings.Join(pages[page], ""))
	}
	b.WriteString("\n## Mutants\n\n| rule | mutants |\n|---|---|\n")
	rules := map[string][]string{}
	for _, m := range mutant.All() {
		for _, rule := range m.Rules {
			rules[string(rule)] = append(rules[string(rule)], m.Name)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		fmt.Fprintf(&b, "| %s | %s |\n", rule, strings.Join(rules[rule], ", "))
	}
	path := filepath.FromSlash(root + "docs/evidence.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("docs/evidence.md is not what `make generate` writes (-want +got):\n%s", diff)
	}
}

// testNames returns the names of all tests, benchmarks and fuzz tests of the repository.
func testNames(t *testing.T, root string) map[string]bool {
	t.Helper()
	list, err := exec.Command("git", "-C", root, "grep", "-hoE", "^func (Test|Benchmark|Fuzz|Example)[A-Za-z0-9_]*", "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range bytes.Lines(list) {
		names[strings.TrimPrefix(strings.TrimSpace(string(line)), "func ")] = true
	}
	return names
}
