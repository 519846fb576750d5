package db

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/lab/pgtest"
)

// An SQL function records the objects that its statement was resolved to: pg_depend lists them. The
// test makes a function of each statement and looks for objects of the hostile schema there.
func TestStatementsFindNothingInASchemaInFrontOfTheSystems(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	statements := generatedTexts(t)
	shadow(t, conn, statements)
	if _, err := conn.Exec(t.Context(), "set search_path = hostile, pg_catalog, public"); err != nil {
		t.Fatal(err)
	}
	for i, sql := range statements {
		if strings.Contains(sql, "\nLISTEN ") { // not allowed in a function
			continue
		}
		if found := foundBy(t, conn, i, sql); len(found) > 0 {
			t.Errorf("it has found %q:\n%s", found, sql)
		}
	}
	for i, control := range []string{
		"SELECT pg_catalog.clock_timestamp() + '1 day'::pg_catalog.interval", "SELECT clock_timestamp()", "SELECT '1'::text", "SELECT count(*) FROM idem.records",
		"DELETE FROM idem.records r WHERE r.scope = $1::pg_catalog.text",
	} {
		if len(foundBy(t, conn, len(statements)+i, control)) == 0 {
			t.Errorf("nothing is found in front of the system's by %s", control)
		}
	}
}

// foundBy returns the names of objects in the hostile schema that a statement would use.
func foundBy(t *testing.T, conn *pgx.Conn, n int, sql string) []string {
	t.Helper()
	described, err := conn.PgConn().Prepare(t.Context(), fmt.Sprint("s", n), sql, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	types := make([]string, len(described.ParamOIDs))
	for i, oid := range described.ParamOIDs {
		if err := conn.QueryRow(t.Context(), "select pg_catalog.format_type($1, null)", oid).Scan(&types[i]); err != nil {
			t.Fatal(err)
		}
	}
	probe := fmt.Sprintf("create function public.probe_%d(%s) returns void begin atomic\n%s;\nend", n, strings.Join(types, ", "), sql)
	if _, err := conn.Exec(t.Context(), probe, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%v\n%s", err, probe)
	}
	rows, _ := conn.Query(t.Context(), `select hostile.name::pg_catalog.text from pg_catalog.pg_depend d
		join (select oid, proname as name, pronamespace as space from pg_catalog.pg_proc
		      union all select oid, oprname, oprnamespace from pg_catalog.pg_operator
		      union all select oid, typname, typnamespace from pg_catalog.pg_type) hostile on hostile.oid operator(pg_catalog.=) d.refobjid
		where d.objid operator(pg_catalog.=) $1::pg_catalog.text::pg_catalog.regproc::pg_catalog.oid
		  and hostile.space operator(pg_catalog.=) 'hostile'::pg_catalog.regnamespace::pg_catalog.oid`,
		pgx.QueryExecModeSimpleProtocol, fmt.Sprint("public.probe_", n))
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// shadow creates a schema with every function, operator and type that the statements name.
func shadow(t *testing.T, conn *pgx.Conn, statements []string) {
	t.Helper()
	all := strings.Join(statements, "\n")
	named := func(pattern string) []string {
		seen := map[string]bool{}
		var names []string
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(all, -1) {
			if !seen[match[1]] {
				seen[match[1]] = true
				names = append(names, match[1])
			}
		}
		if len(names) < 5 {
			t.Fatalf("%s is named by %q", pattern, names)
		}
		return names
	}
	for sql, names := range map[string][]string{
		shadowFunctions: named(`pg_catalog\.(\w+)\(`),
		shadowOperators: named(`OPERATOR\(pg_catalog\.([^)]+)\)`),
		shadowTypes:     named(`::pg_catalog\.(\w+)`),
	} {
		list := "'" + strings.Join(names, "', '") + "'"
		if _, err := conn.Exec(t.Context(), strings.ReplaceAll(sql, "NAMES", list), pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
}

// The blocks skip functions and operators with a pseudo-type, which cannot be copied.
const (
	shadowFunctions = `create schema if not exists hostile;
	create or replace aggregate hostile.count(*) (sfunc = pg_catalog.int8inc, stype = int8, initcond = 0);
	do $do$ declare f record; begin
		for f in select p.proname, pg_get_function_identity_arguments(p.oid) args, pg_get_function_result(p.oid) result
			from pg_proc p where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and p.proname in (NAMES) loop
			begin execute format('create function hostile.%I(%s) returns %s language plpgsql as $f$ begin raise exception ''hostile''; end $f$', f.proname, f.args, f.result);
			exception when others then null; end;
		end loop;
	end $do$`
	shadowOperators = `create schema if not exists hostile;
	do $do$ declare o record; begin
		for o in select p.oid, p.oprname, nullif(p.oprleft, 0)::regtype l, p.oprright::regtype r, p.oprresult::regtype result
			from pg_operator p where p.oprnamespace = 'pg_catalog'::regnamespace and p.oprname in (NAMES) loop
			begin
				execute format('create function hostile.operator_%s(%s) returns %s language plpgsql as $f$ begin raise exception ''hostile''; end $f$',
					o.oid, concat_ws(', ', o.l, o.r), o.result);
				execute format('create operator hostile.%s (function = hostile.operator_%s, %s rightarg = %s)',
					o.oprname, o.oid, 'leftarg = ' || o.l || ',', o.r);
			exception when others then null; end;
		end loop;
	end $do$`
	shadowTypes = `create schema if not exists hostile;
	do $do$ declare n text; begin
		foreach n in array array[NAMES] loop execute format('create domain hostile.%I as pg_catalog.%I', n, n); end loop;
	end $do$`
)

// generatedTexts returns all generated statements.
func generatedTexts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.sql.go")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	var found []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil && strings.HasPrefix(text, "-- name: ") {
					found = append(found, text)
				}
			}
			return true
		})
	}
	return found
}
