package doctor_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// onCall returns the statements of the docs that grant privileges to the on-call role. The role
// exists already.
func onCall(t *testing.T, role string) (statements []string) {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, _ := strings.Cut(string(text), "CREATE ROLE idem_look;\n")
	block, _, found := strings.Cut(text2, "```")
	if !found {
		t.Fatal("docs/operate.md creates no role idem_look")
	}
	for line := range strings.Lines(block) {
		statements = append(statements, strings.ReplaceAll(line, "idem_look", role))
	}
	return statements
}

func TestDoctor_OnCallRoleSeesEverything(t *testing.T) {
	t.Parallel()
	for name, partitioned := range map[string]bool{"one table": false, "partitions": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestDB(t)
			if partitioned {
				w.partition()
			}
			w.exec("CREATE TABLE IF NOT EXISTS public.idem_goose_version (id serial, version_id bigint, is_applied bool, tstamp timestamp)")
			address := w.role("")
			w.exec(onCall(t, roleOf(t, address))...)
			w.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
				SELECT 's', n::text, '', gen_random_uuid(), now(), now() + '1 h', 'completed' FROM generate_series(1, 1000) n`, "ANALYZE")
			looking := testDBAt(t, address)
			looking.opts.Limits.BloatedSize = 1 // to examine all statistics
			if _, unknown := looking.examine(); len(unknown) > 0 {
				t.Errorf("%+v", unknown)
			}
			for _, forbidden := range []string{"DELETE FROM idem.records", "UPDATE idem.outbox SET held = true", "CREATE TABLE idem.mine ()"} {
				if _, err := looking.pool.Exec(t.Context(), forbidden); err == nil {
					t.Errorf("the role may %s", forbidden)
				}
			}
		})
	}
}

// The test follows each advice about grants, as the owner, until no finding is Unknown.
func TestUnknown_NamesTheMissingGrants(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.exec("CREATE TABLE IF NOT EXISTS public.idem_goose_version (id serial, version_id bigint, is_applied bool, tstamp timestamp)")
	blind := testDBAt(t, w.role(""))
	blind.finds("privileges", doctor.Problem, "lacks USAGE on schema idem, SELECT on idem.records, INSERT on idem.records, UPDATE on idem.records", "GRANT")
	for range 2 { // a grant may reveal further findings of this level
		_, unknown := blind.examine()
		for _, f := range unknown {
			if !strings.HasPrefix(f.Remedy, "GRANT ") {
				t.Errorf("%+v", f)
			}
			advice, _, _ := strings.Cut(f.Remedy, ", or connect")
			w.exec(strings.Split(advice, "; ")...)
		}
	}
	if _, unknown := testDBAt(t, blind.with(func(*url.URL) {})).examine(); len(unknown) > 0 {
		t.Errorf("%+v", unknown)
	}
}
