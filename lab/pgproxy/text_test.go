package pgproxy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCallsAreFoundInTheTextOfAStatement(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]string{
		"select 1": nil,
		"select pg_catalog.set_config('a.b', $1::pg_catalog.text, true)": {"pg_catalog.set_config=set_config 'a.b'"},
		"select F (1), \"g\"(2), 'h(3)' -- i(4)\n, j ( /* x */ 'y')":     {"F=f ''", "j=j 'y'"},
		"select (a).b, c(d(e))": {"select=select ''", "c=c ''", "d=d ''"},
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
