package operation_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/db"
)

// A list that is cast within a condition is parsed for every row: with a thousand operations under way, a hundred of them this
// process's own, every look would take fifty times as long, and with ten times as many a hundred times that.
func TestStatements_HashTheirLists(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := "00000000-0000-4000-8000-000000000000"
	for _, test := range []struct {
		name, sql string
		args      []any
	}{
		{"TakeOperations", db.TakeOperationsSQL, []any{1, "{checkout}", "{" + id + "}", true, 16}},
		{"DueOperations", db.DueOperationsSQL, []any{16, "{checkout}", "{" + id + "/1}"}},
		{"Disown", db.DisownSQL, []any{1, "{" + id + "}"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rows, _ := s.pool.Query(t.Context(), "explain (costs off) "+test.sql, test.args...)
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			hashed := false
			for _, line := range plan {
				hashed = hashed || strings.Contains(line, "hashed SubPlan")
				if strings.Contains(line, "Filter:") && (strings.Contains(line, "::uuid[]") || strings.Contains(line, "::text[]")) {
					t.Errorf("a list is cast in a condition: %s", strings.TrimSpace(line))
				}
			}
			if !hashed {
				t.Errorf("no list is hashed:\n%s", strings.Join(plan, "\n"))
			}
		})
	}
}
