package command_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// The golden files hold the output of commands as text and as JSON.
func TestOutputIsAsTheGoldenFilesHaveIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	same, other := filepath.Join(dir, "same.json"), filepath.Join(dir, "other.json")
	for file, body := range map[string]string{same: `{"client_time": 2, "sku": "teapot"}`, other: `{"sku": "kettle"}`} {
		if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range map[string][]string{
		"show":                {"show", scope, placed},
		"show-full-reveal":    {"show", scope, placed, "--full", "--reveal"},
		"show-escapes":        {"show", scope, declined, "--reveal"},
		"show-none":           {"show", scope, "never-used"},
		"list":                {"list"},
		"list-more":           {"list", "--limit", "2", "--full"},
		"list-after":          {"list", "--after-scope", scope, "--after-key", declined},
		"list-scope":          {"list", "--scope", "tenant-2/"},
		"list-expired":        {"list", "--state", "expired"},
		"list-older":          {"list", "--older", "1d"},
		"list-none":           {"list", "--scope", "tenant-3"},
		"explain-unused":      {"explain", "tenant-1/POST/orders", placed},
		"explain-replay":      {"explain", scope, placed},
		"explain-same":        {"explain", scope, placed, "--request", same, "--without", "/client_time"},
		"explain-mismatch":    {"explain", scope, placed, "--request", other, "--method", "POST", "--target", "/orders"},
		"explain-rejected":    {"explain", scope, declined},
		"explain-expired":     {"explain", scope, forgotten},
		"explain-left-behind": {"explain", scope, left},
		"explain-invalid":     {"explain", scope, strings.Repeat("k", 256)},
		"stuck":               {"stuck"},
		"evict-dry-run":       {"evict", scope, left, "--execution", leftID, "--dry-run"},
		"evict":               {"evict", scope, left, "--execution", leftID, "--yes"},
		"evict-another":       {"evict", scope, left, "--execution", placedID, "--yes"},
		"evict-unasked":       {"evict", scope, placed, "--execution", placedID},
	} {
		for kind, further := range map[string][]string{"txt": nil, "json": {"--json"}} {
			t.Run(name+"."+kind, func(t *testing.T) {
				t.Parallel()
				d := newDesk(t)
				d.keep()
				got := d.idem(append(args, further...)...)
				compareGolden(t, name+"."+kind, fmt.Sprintf("%s%sexit %d\n", got.stdout, got.stderr, got.code))
			})
		}
	}
}

// moments replaces times by a text of the same length, so that columns stay aligned.
var moments = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`), "2026-01-02 03:04:05 UTC"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2026-01-02T03:04:05Z"},
	{regexp.MustCompile(`"oldest_seconds": [1-9][\d.]*`), `"oldest_seconds": 12600.5`},
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	for _, m := range moments {
		got = m.find.ReplaceAllString(got, m.put)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-golden +got), go test -update writes it anew:\n%s", path, diff)
	}
}
