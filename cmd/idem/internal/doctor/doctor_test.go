package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// ofTheTestServer lists the findings about the test server: fsync off, no standby, and the default
// timeouts of Postgres.
var ofTheTestServer = []string{"durability", "synchronous-commit", "keepalives", "idle-in-transaction"}

func TestHealthyDatabaseHasNoFindings(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	results, err := doctor.Examine(t.Context(), w.pool, w.opts, func(string, int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) < 30 {
		t.Errorf("only %d checks", len(results))
	}
	for _, result := range results {
		if result.Worst() == doctor.Unknown {
			t.Errorf("not checked: %+v", result)
		}
		if slices.Contains(ofTheTestServer, result.Check) || strings.HasPrefix(result.Check, "xmin-") || result.Check == "lock-table" || result.Check == "connections" {
			continue // caused by other tests
		}
		if len(result.Findings) > 0 {
			t.Errorf("%+v", result)
		}
	}
}

// Every check has a result without the tables of idem.
func TestDatabaseWithoutTheSchemaIsExaminedAsWell(t *testing.T) {
	t.Parallel()
	w := wardEmpty(t)
	results, err := doctor.Examine(t.Context(), w.pool, w.opts, func(string, int, int) {})
	if err != nil {
		t.Fatal(err)
	}
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

// A role without privileges gets a finding for each check that could not run.
func TestRoleThatMaySeeNothingIsToldWhatWasNotChecked(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	stranger := w.role("")
	blind := wardAt(t, stranger)
	blind.finds("privileges", doctor.Problem, "lacks USAGE on schema idem, SELECT on idem.records, INSERT on idem.records, UPDATE on idem.records", "GRANT")
	blind.finds("xmin-transaction", doctor.Unknown, "pg_monitor")
}
