package command_test

import (
	"encoding/base64"
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

// outputs has the command lines whose output is compared with golden files. SCOPE and capitals that
// end in ID stand for names of the stored objects.
var outputs = map[string]string{
	"show":                "show SCOPE " + placed,
	"show-full-reveal":    "show SCOPE " + placed + " --full --reveal",
	"show-escapes":        "show SCOPE " + declined + " --reveal",
	"show-none":           "show SCOPE never-used",
	"list":                "list",
	"list-more":           "list --limit 2 --full",
	"list-after":          "list --after tenant-1%2FPOST%20%252Forders/" + declined,
	"list-filtered":       "list --scope tenant-1/ --state completed --older 1m",
	"list-none":           "list --scope tenant-3",
	"explain-unused":      "explain tenant-1/POST/orders " + placed,
	"explain-replay":      "explain SCOPE " + placed,
	"explain-same":        "explain SCOPE " + placed + " --request SAME --without /client_time",
	"explain-mismatch":    "explain SCOPE " + placed + " --request OTHER --method POST --target /orders",
	"explain-rejected":    "explain SCOPE " + declined,
	"explain-expired":     "explain SCOPE " + forgotten,
	"explain-left-behind": "explain SCOPE " + left,
	"explain-invalid":     "explain SCOPE " + strings.Repeat("k", 256),
	"stuck":               "stuck",
	"evict-dry-run":       "evict SCOPE " + left + " --execution " + leftID + " --dry-run",
	"evict-another":       "evict SCOPE " + left + " --execution " + placedID + " --yes",

	"operation-list":           "operation list",
	"operation-list-more":      "operation list --limit 2 --full",
	"operation-list-after":     "operation list --after " + parkedID,
	"operation-list-parked":    "operation list --state parked --name checkout --scope tenant-1/ --older 1d",
	"operation-show":           "operation show " + doneID,
	"operation-show-reveal":    "operation show " + doneID + " --reveal --full",
	"operation-show-parked":    "operation show " + parkedID,
	"operation-show-full":      "operation show " + parkedID + " --full",
	"operation-show-waits":     "operation show " + waitsID,
	"operation-show-undone":    "operation show " + undoneID + " --reveal",
	"operation-history":        "operation history " + undoneID,
	"operation-retry-dry-run":  "operation retry --all --older 1h --dry-run",
	"operation-cancel-unasked": "operation cancel --all --scope tenant-1/",

	"outbox-stats":         "outbox stats",
	"outbox-list":          "outbox list",
	"outbox-list-more":     "outbox list --limit 2 --full",
	"outbox-list-held":     "outbox list --state held --topic orders --older 1h",
	"outbox-list-delayed":  "outbox list --state delayed --limit 1",
	"inbox-stats":          "inbox stats",
	"inbox-list":           "inbox list",
	"inbox-list-more":      "inbox list --limit 1 --full",
	"inbox-list-filtered":  "inbox list --consumer shipping --source stripe",
	"dead-list":            "dead list",
	"dead-list-more":       "dead list --limit 1 --full",
	"dead-list-after":      "dead list --after inbox/billing/stripe/" + twiceID,
	"dead-list-filtered":   "dead list --side inbox --consumer billing --source stripe --class 40001 --older 1d",
	"dead-list-topic":      "dead list --topic orders",
	"dead-show":            "dead show " + deadOutID,
	"dead-show-reveal":     "dead show " + deadInID + " --reveal --full",
	"dead-show-several":    "dead show " + twiceID,
	"dead-redrive-dry-run": "dead redrive --all --side inbox --dry-run",

	"audit":           "audit",
	"audit-more":      "audit --limit 2",
	"audit-filtered":  "audit --since 2d --older 2h --act resolve",
	"audit-person":    "audit --person ann@example.com",
	"audit-operation": "audit --operation " + parkedID,
	"audit-message":   "audit --message " + deadOutID,
}

// changes has the command lines that change something.
var changes = map[string]string{
	"evict":                     "evict SCOPE " + left + " --execution " + leftID + " --yes",
	"operation-retry":           "operation retry " + parkedID + " --yes",
	"operation-retry-all":       "operation retry --all --name checkout --step charge --yes",
	"operation-cancel":          "operation cancel " + waitsID + " --yes",
	"operation-cancel-doubt":    "operation cancel " + parkedID + " --without-calling --without-code --yes",
	"operation-cancel-all":      "operation cancel --all --state running --name refund --yes",
	"operation-resolve":         "operation resolve " + parkedID + ` --reason INC-7 --happened --value {"charge":"ch_1"} --yes`,
	"operation-resolve-unasked": "operation resolve " + parkedID + " --reason INC-7 --not-happened",
	"outbox-forget":             "outbox forget invoices --yes",
	"dead-redrive":              "dead redrive " + deadOutID + " --yes",
	"dead-redrive-all":          "dead redrive --all --side inbox --consumer billing --yes",
	"dead-drop":                 "dead drop --all --older 1d --limit 2 --yes",
}

// line splits a command line, and replaces the names of stored objects.
func (d *harness) line(text string) []string {
	words := strings.Fields(text)
	for i := range words {
		switch words[i] {
		case "SCOPE":
			words[i] = scope
		case "SAME", "OTHER":
			file := filepath.Join(d.t.TempDir(), "request")
			body := map[string]string{"SAME": `{"client_time": 2, "sku": "teapot"}`, "OTHER": `{"sku": "kettle"}`}[words[i]]
			if err := os.WriteFile(file, []byte(body), 0o600); err != nil {
				d.t.Fatal(err)
			}
			words[i] = file
		}
	}
	return words
}

// The commands that only read share a database.
func TestOutput_MatchesGoldenFiles(t *testing.T) {
	t.Parallel()
	d := newHarness(t)
	d.keepAll()
	compare := func(name, line string) {
		for kind, further := range map[string][]string{"txt": nil, "json": {"--json"}} {
			got := d.idem(append(d.line(line), further...)...)
			compareGolden(t, name+"."+kind, fmt.Sprintf("%s%sexit %d\n", got.stdout, got.stderr, got.code))
			if _, isChange := changes[name]; isChange {
				d.keepAll()
			}
		}
	}
	for name, line := range outputs {
		compare(name, line)
	}
	for name, line := range changes {
		compare(name, line)
	}
}

// The test reads the golden files, because TestOutput_MatchesGoldenFiles compares them with the
// output.
func TestOutput_HidesKeysAndContents(t *testing.T) {
	t.Parallel()
	secrets := []string{placed, declined, forgotten, left, "secret", base64.StdEncoding.EncodeToString([]byte("the secret")), "X-Order", "Ada", "Grace", "the header",
		"teapot", "ch_secret", "order\":", `"yes"`, "\x1b", "\u202e"}
	for name, line := range outputs {
		if strings.Contains(line, "--full") || strings.Contains(line, "--reveal") || strings.Contains(line, "history") || strings.Contains(line, "--after") {
			continue
		}
		for _, kind := range []string{"txt", "json"} {
			got, err := os.ReadFile(filepath.Join("testdata", name+"."+kind))
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range secrets {
				if secret == "\u202e" && kind == "json" {
					continue // programs do not interpret it
				}
				if strings.Contains(string(got), secret) {
					t.Errorf("%s.%s shows %q:\n%s", name, kind, secret, got)
				}
			}
		}
	}
}

// moments replaces each time with a fixed one of the same length, so that columns stay aligned.
var moments = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`), "2026-01-02 03:04:05 UTC"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2026-01-02T03:04:05Z"},
	// All stored times are half an hour off, so that a slow machine changes the minutes alone.
	{regexp.MustCompile(`\b(2[5-9]|3[0-9]) min\b`), "30 min"},
	{regexp.MustCompile(`"oldest_seconds": [1-9][\d.]*`), `"oldest_seconds": 12600.5`},
}

func atFixedMoments(text string) string {
	for _, m := range moments {
		text = m.find.ReplaceAllString(text, m.put)
	}
	return text
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	got = atFixedMoments(got)
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
	if diff := cmp.Diff(atFixedMoments(string(want)), got); diff != "" {
		t.Errorf("%s (-golden +got), go test -update rewrites it:\n%s", path, diff)
	}
}
