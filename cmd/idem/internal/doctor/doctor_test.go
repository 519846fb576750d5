package doctor_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// ofTheTestServer lists the findings about the test server: fsync off, no standby, and the default
// timeouts of Postgres.
var ofTheTestServer = []string{"durability", "synchronous-commit", "keepalives", "idle-in-transaction"}

func TestDoctor_FindsNothingInAHealthyDatabase(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	results, unknown := w.examine()
	if len(results) < 30 || len(unknown) > 0 {
		t.Errorf("%d checks; not possible: %+v", len(results), unknown)
	}
	for _, result := range results {
		if slices.Contains(ofTheTestServer, result.Check) || strings.HasPrefix(result.Check, "xmin-") || result.Check == "lock-table" || result.Check == "connections" {
			continue // caused by other tests
		}
		if len(result.Findings) > 0 {
			t.Errorf("%+v", result)
		}
	}
}

// Every check has a result without the tables of idem.
func TestDoctor_ExaminesADatabaseWithoutTheSchema(t *testing.T) {
	t.Parallel()
	w := emptyTestDB(t)
	results, _ := w.examine()
	for _, result := range results {
		for _, f := range result.Findings {
			if f.What == "" || f.Remedy == "" {
				t.Errorf("%s: %+v", result.Check, f)
			}
		}
	}
	w.finds("table", doctor.Problem, "no table idem.records", "idem migrate up")
	w.finds("migrations", doctor.Problem, "no migration has been applied", "idem migrate up")
	w.finds("primary-key", doctor.Unknown, "not checked")
}

func TestDocs_ListEveryCheck(t *testing.T) {
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
}
