package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/lab/pgtest"
)

// The expected tables must equal the catalog of a migrated database.
func TestDoctor_KnowsEveryTable(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	read := func(sql string) (found []string) {
		t.Helper()
		rows, err := pool.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Fatal(err)
			}
			found = append(found, text)
		}
		return found
	}
	for what, tt := range map[string]struct {
		sql  string
		want func(*expected) []string
	}{
		"tables and columns": {
			`SELECT c.relname || ': ' || string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
			FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
			WHERE c.relnamespace = 'idem'::regnamespace AND c.relkind NOT IN ('i', 'S') GROUP BY c.relname`,
			func(t *expected) []string { return []string{t.name + ": " + t.columns} },
		},
		"primary keys": {
			`SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'idem'::regnamespace AND contype = 'p'`,
			func(t *expected) []string { return []string{"idem." + t.name + " PRIMARY KEY (" + t.key + ")"} },
		},
		"indexes": {
			`SELECT indrelid::regclass || ' ' || c.relname || ' ' || substring(pg_get_indexdef(c.oid) FROM ' USING (.*)$') FROM pg_index i
			JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'idem'::regnamespace AND NOT indisprimary`,
			func(t *expected) (all []string) {
				for _, of := range t.indexes {
					all = append(all, "idem."+t.name+" "+of)
				}
				return all
			},
		},
	} {
		var want []string
		for i := range tables {
			want = append(want, tt.want(&tables[i])...)
		}
		compareSorted(t, what, read(tt.sql), want)
	}
	var known []string
	for name := range sequences {
		known = append(known, name)
	}
	compareSorted(t, "sequences", read("SELECT relname FROM pg_class WHERE relnamespace = 'idem'::regnamespace AND relkind = 'S'"), known)
}

func compareSorted(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s are\n%s\nand the doctor expects\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
