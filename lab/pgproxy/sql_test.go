package pgproxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplit_CutsLikeTheServer(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]string{
		"commit":                          {"commit"},
		"begin; insert into t values (1)": {"begin", "insert into t values (1)"},
		" select 1 ;; select 2 ; ":        {"select 1", "select 2"},
		"select ';', \"a;b\", 'it''s;'":   {"select ';', \"a;b\", 'it''s;'"},
		`select E'\';', e'x'; commit`:     {`select E'\';', e'x'`, "commit"},
		`select '\'; commit`:              {`select '\'`, "commit"},
		"select $$;$$; select $x$;$$;$x$": {"select $$;$$", "select $x$;$$;$x$"},
		"select $1;select a$b$;select 2":  {"select $1", "select a$b$", "select 2"},
		"select 1 -- ;\n; select 2":       {"select 1 -- ;", "select 2"},
		"/* ; /* ; */ ; */ select 1":      {"/* ; /* ; */ ; */ select 1"},
		"create rule r as on insert to t do (delete from a; delete from b); commit": {
			"create rule r as on insert to t do (delete from a; delete from b)", "commit"},
		"select 'unterminated; commit": {"select 'unterminated; commit"},
		"-- ping":                      {"-- ping"},
		";":                            {";"},
		"":                             {""},
	} {
		if diff := cmp.Diff(want, Split(sql)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", sql, diff)
		}
	}
}

func TestIsCommit_Spellings(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"commit":                    true,
		"  COMMIT work ":            true,
		"-- done\n/* x */ Commit;":  true,
		"commit and chain":          true,
		"end":                       true,
		"END TRANSACTION":           true,
		"commit prepared 'x'":       false,
		"rollback":                  false,
		"select 'commit'":           false,
		"'commit'":                  false,
		"committed":                 false,
		"":                          false,
		"insert into commit values": false,
	} {
		if got := IsCommit(Statement{SQL: sql}); got != want {
			t.Errorf("IsCommit(%q) = %t", sql, got)
		}
	}
}

func TestCalls_FindsFunctionNames(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]string{
		"select 1": nil,
		"select pg_catalog.set_config('a.b', $1::pg_catalog.text, true)": {"pg_catalog.set_config=set_config 'a.b'"},
		"select F (1), \"g\"(2), 'h(3)' -- i(4)\n, j ( /* x */ 'y')":     {"F=f ''", "j=j 'y'"},
	} {
		var got []string
		for _, call := range Calls(sql) {
			got = append(got, sql[call.Start:call.End]+"="+call.Function+" '"+call.First+"'")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sql, diff)
		}
	}
}
