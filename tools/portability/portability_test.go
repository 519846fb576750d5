package portability

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is found into docs/portability.md and statements.md")

func TestNeedsAreFoundInTheText(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]Need{
		"SELECT 1": nil,
		"SELECT pg_catalog.pg_try_advisory_xact_lock(1)":                                      {TransactionLocks},
		"SELECT set_config('a.b', 'c', true)":                                                 {LocalSettings},
		"SELECT set_config('a.b', 'c', false), set_config('jit', 'off', true)":                {SessionSettings, PlannerSettings},
		"SELECT set_config('synchronous_commit', 'off', true)":                                {Durability},
		"SELECT 1 FROM pg_catalog.pg_locks, pg_catalog.pg_stat_activity, pg_catalog.pg_class": {LockTable, Sessions, Catalog},
		"SELECT 1 FROM idem.a FOR UPDATE SKIP LOCKED":                                         {RowLocks, SkipLocked},
		"INSERT INTO idem.a VALUES (1) ON CONFLICT DO NOTHING":                                {OnConflict},
		"WITH a AS (DELETE FROM idem.a RETURNING 1) SELECT 1 FROM a":                          {WritingWith},
		`SELECT 'a' COLLATE "C", 1 OPERATOR(pg_catalog./) 2`:                                  {Collation, Division},
		"SELECT 1 FROM idem.a, LATERAL (SELECT 1) b":                                          {Lateral},
		"SELECT 1 FROM ROWS FROM (unnest('{}'::text[])) AS u":                                 {Lateral},
		"LISTEN a": {Listening},
		"SELECT 'pg_try_advisory_lock(1)' -- pg_notify()": nil,
	} {
		got, err := Of(sql)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s needs %v, %v", sql, got, err)
		}
	}
}

// docs/portability.md says which servers have each need. statements.md says what each statement
// needs.
func TestPageSaysWhatTheStatementsNeed(t *testing.T) {
	t.Parallel()
	for file, table := range map[string]struct{ name, text string }{
		"../../docs/portability.md": {"needs", needsTable()},
		"statements.md":             {"statements", statementsTable(t)},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := "<!-- "+table.name+" -->\n", "<!-- end of "+table.name+" -->"
		before, rest, ok := strings.Cut(string(text), begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no place for %s", file, table.name)
		}
		written := before + begin + table.text + end + after
		if written == string(text) {
			continue
		}
		if !*update {
			t.Errorf("%s is not what the statements need: make generate", file)
		} else if err := os.WriteFile(file, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func needsTable() string {
	var b strings.Builder
	b.WriteString("| need |")
	for _, s := range Servers {
		b.WriteString(" " + s.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(Servers)) + "\n")
	for _, need := range Needs {
		b.WriteString("| " + string(need) + " |")
		for _, s := range Servers {
			has := s.Has[need]
			if has == "" {
				has = "yes"
			}
			b.WriteString(" " + has + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func statementsTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| queries | statement | needs | refused by |\n|---|---|---|---|\n")
	statements := 0
	for _, pattern := range []string{"../../internal/db/*.sql.go", "../../internal/statsdb/*.sql.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		slices.Sort(files)
		for _, file := range files {
			for _, sql := range texts(t, file) {
				statements++
				needs, err := Of(sql)
				if err != nil {
					t.Fatalf("%v\n%s", err, sql)
				}
				var names []string
				for _, need := range needs {
					names = append(names, string(need))
				}
				name, _, _ := strings.Cut(strings.TrimPrefix(sql, "-- name: "), " ")
				source := strings.TrimSuffix(filepath.Base(file), ".sql.go")
				fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", source, name, strings.Join(names, "; "), strings.Join(RefusedBy(needs), ", "))
			}
		}
	}
	if statements < 100 {
		t.Errorf("%d statements were found", statements)
	}
	return b.String()
}

// texts returns the statements of a file in the form that servers get.
func texts(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && strings.HasPrefix(text, "-- name: ") {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}
