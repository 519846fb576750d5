package doctor_test

import (
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// Each fault is made in a separate database, where the check is quiet before.
func TestDoctor_FindsFaultsOfTheSchema(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		check string
		sql   []string
		level doctor.Level
		says  []string
	}{
		"the schema is ahead": {
			"migrations", []string{"CREATE TABLE IF NOT EXISTS public.idem_goose_version (id serial, version_id bigint, is_applied bool, tstamp timestamp)",
				"INSERT INTO public.idem_goose_version (version_id, is_applied) VALUES (99, true)"},
			doctor.Warning, []string{"99", "go install"},
		},
		"the schema is behind": {
			"migrations", []string{"INSERT INTO public.idem_goose_version (version_id, is_applied) VALUES (1, false)"},
			doctor.Problem, []string{"[1] are missing", "idem migrate up"},
		},
		"a migration by hand":              {"migrations", []string{"DROP TABLE public.idem_goose_version"}, doctor.Note, []string{"another tool"}},
		"two version tables":               {"migrations", []string{"CREATE SCHEMA app", "CREATE TABLE app.idem_goose_version (LIKE public.idem_goose_version)"}, doctor.Warning, []string{"app.idem_goose_version"}},
		"a view":                           {"table", []string{"ALTER TABLE idem.records RENAME TO r", "CREATE VIEW idem.records AS SELECT * FROM idem.r"}, doctor.Problem, []string{"is not a table"}},
		"a column of another type":         {"columns", []string{"ALTER TABLE idem.records ALTER header TYPE text"}, doctor.Problem, []string{"header", "text", "jsonb"}},
		"another primary key":              {"primary-key", []string{"ALTER TABLE idem.records DROP CONSTRAINT records_pkey, ADD PRIMARY KEY (scope, key, hash)"}, doctor.Problem, []string{"(scope, key, hash)"}},
		"a deferred primary key":           {"primary-key", []string{"ALTER TABLE idem.records DROP CONSTRAINT records_pkey, ADD PRIMARY KEY (scope, key) DEFERRABLE"}, doctor.Problem, []string{"DEFERRABLE"}},
		"another collation":                {"collation", []string{`ALTER TABLE idem.records ALTER key TYPE text COLLATE "default"`}, doctor.Problem, []string{"key has", `COLLATE "C"`}},
		"one more index":                   {"indexes", []string{"CREATE INDEX of_ours ON idem.records (expires_at)"}, doctor.Warning, []string{"idem.of_ours", "DROP INDEX CONCURRENTLY"}},
		"an index that failed to be built": {"indexes", []string{"CREATE INDEX broken ON idem.records (scope)", "SET allow_system_table_mods = on; UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idem.broken'::regclass"}, doctor.Warning, []string{"idem.broken is invalid", "DROP INDEX CONCURRENTLY"}},
		"published":                        {"replica-identity", []string{"CREATE PUBLICATION p FOR ALL TABLES"}, doctor.Note, []string{"published"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestDB(t)
			w.exec("CREATE TABLE IF NOT EXISTS public.idem_goose_version (id serial, version_id bigint, is_applied bool, tstamp timestamp)")
			w.findsNothing(tt.check)
			w.exec(tt.sql...)
			w.finds(tt.check, tt.level, tt.says...)
		})
	}
}

func TestDoctor_FindsMissingPrivileges(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	name := roleOf(t, w.role(""))
	w.opts.Role = name
	w.exec("GRANT USAGE ON SCHEMA idem TO "+name, "GRANT SELECT, INSERT ON idem.records TO "+name)
	w.finds("privileges", doctor.Problem, "lacks UPDATE on idem.records", name)
	w.exec("GRANT UPDATE ON idem.records TO " + name)
	w.findsNothing("privileges")
	w.exec("ALTER TABLE idem.records ENABLE ROW LEVEL SECURITY")
	w.finds("row-security", doctor.Problem, name, "DISABLE ROW LEVEL SECURITY")
	w.opts.Role = ""
	w.finds("row-security", doctor.Note, "does not apply")
}
