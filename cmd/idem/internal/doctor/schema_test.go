package doctor_test

import (
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// Each fault is made in a separate database, where the check is quiet before.
func TestDoctorFindsWhatIsWrongWithTheSchema(t *testing.T) {
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
		"a migration by hand":           {"migrations", []string{"DROP TABLE public.idem_goose_version"}, doctor.Note, []string{"another tool"}},
		"two version tables":            {"migrations", []string{"CREATE SCHEMA app", "CREATE TABLE app.idem_goose_version (LIKE public.idem_goose_version)"}, doctor.Warning, []string{"app.idem_goose_version"}},
		"no table":                      {"table", []string{"DROP TABLE idem.records"}, doctor.Problem, []string{"idem migrate up"}},
		"a view":                        {"table", []string{"ALTER TABLE idem.records RENAME TO r", "CREATE VIEW idem.records AS SELECT * FROM idem.r"}, doctor.Problem, []string{"no table but"}},
		"a column is missing":           {"columns", []string{"ALTER TABLE idem.records DROP COLUMN header"}, doctor.Problem, []string{"header", "is missing"}},
		"a column of another type":      {"columns", []string{"ALTER TABLE idem.records ALTER header TYPE text"}, doctor.Problem, []string{"header", "text", "jsonb"}},
		"no primary key":                {"primary-key", []string{"ALTER TABLE idem.records DROP CONSTRAINT records_pkey"}, doctor.Problem, []string{"executed twice", "ADD PRIMARY KEY"}},
		"another primary key":           {"primary-key", []string{"ALTER TABLE idem.records DROP CONSTRAINT records_pkey, ADD PRIMARY KEY (scope, key, hash)"}, doctor.Problem, []string{"(scope, key, hash)"}},
		"a deferred primary key":        {"primary-key", []string{"ALTER TABLE idem.records DROP CONSTRAINT records_pkey, ADD PRIMARY KEY (scope, key) DEFERRABLE"}, doctor.Problem, []string{"DEFERRABLE"}},
		"an invalid primary key":        {"primary-key", []string{"SET allow_system_table_mods = on; UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idem.records_pkey'::regclass"}, doctor.Problem, []string{"invalid", "REINDEX"}},
		"another collation":             {"collation", []string{`ALTER TABLE idem.records ALTER key TYPE text COLLATE "default"`}, doctor.Problem, []string{"key has", `COLLATE "C"`}},
		"an unlogged table":             {"unlogged", []string{"ALTER TABLE idem.records SET UNLOGGED"}, doctor.Problem, []string{"SET LOGGED"}},
		"one more index":                {"indexes", []string{"CREATE INDEX of_ours ON idem.records (expires_at)"}, doctor.Warning, []string{"idem.of_ours", "DROP INDEX CONCURRENTLY"}},
		"a trigger":                     {"triggers", []string{"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'", "CREATE TRIGGER audit BEFORE INSERT ON idem.records FOR EACH ROW EXECUTE FUNCTION f()"}, doctor.Warning, []string{"audit", "DROP TRIGGER"}},
		"a rule":                        {"rules", []string{"CREATE RULE away AS ON INSERT TO idem.records DO INSTEAD NOTHING"}, doctor.Problem, []string{"away", "DROP RULE"}},
		"published without an identity": {"replica-identity", []string{"CREATE PUBLICATION p FOR TABLE idem.records", "ALTER TABLE idem.records REPLICA IDENTITY NOTHING"}, doctor.Problem, []string{"55000", "REPLICA IDENTITY DEFAULT"}},
		"published":                     {"replica-identity", []string{"CREATE PUBLICATION p FOR ALL TABLES"}, doctor.Note, []string{"published"}},
		"all may read":                  {"public-access", []string{"GRANT SELECT ON idem.records TO PUBLIC"}, doctor.Warning, []string{"SELECT", "REVOKE"}},
		"autovacuum is off":             {"autovacuum", []string{"ALTER TABLE idem.records SET (autovacuum_enabled = no)"}, doctor.Problem, []string{"RESET (autovacuum_enabled)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			w.exec("CREATE TABLE IF NOT EXISTS public.idem_goose_version (id serial, version_id bigint, is_applied bool, tstamp timestamp)")
			w.quiet(tt.check)
			w.exec(tt.sql...)
			w.finds(tt.check, tt.level, tt.says...)
		})
	}
}

func TestDoctorFindsAnIndexThatFailedToBeBuilt(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		SELECT 's', n::text, '', '0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10', now(), now(), 'completed' FROM generate_series(1, 2) n`)
	if _, err := w.pool.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY broken ON idem.records (scope)"); err == nil {
		t.Fatal("it was built")
	}
	w.finds("indexes", doctor.Warning, "idem.broken is invalid", "DROP INDEX CONCURRENTLY")
}

func TestDoctorFindsWhatARoleMayNot(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	name := roleOf(t, w.role(""))
	w.opts.Role = name
	w.exec("GRANT USAGE ON SCHEMA idem TO "+name, "GRANT SELECT, INSERT ON idem.records TO "+name)
	w.finds("privileges", doctor.Problem, "lacks UPDATE on idem.records", name)
	w.exec("GRANT UPDATE ON idem.records TO " + name)
	w.quiet("privileges")
	w.exec("ALTER TABLE idem.records ENABLE ROW LEVEL SECURITY")
	w.finds("row-security", doctor.Problem, name, "DISABLE ROW LEVEL SECURITY")
	w.opts.Role = ""
	w.finds("row-security", doctor.Note, "does not apply")
}
