package doctor_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// sickness is a fault that any table may have. The words in capitals in its SQL and findings are
// placeholders: see wordsOf.
type sickness struct {
	name, check string
	level       doctor.Level
	sql, cure   []string
	says        []string
	when        func(table string) bool // nil means always
}

func indexed(table string) bool {
	return table == "operations" || table == "signals" || table == "outbox" || table == "inbox"
}
func swept(table string) bool {
	return slices.Contains([]string{"records", "operations", "inbox", "published", "audit"}, table)
}

var sicknesses = []sickness{
	{"unlogged", "unlogged", doctor.Problem, []string{"ALTER TABLE idem.TABLE SET UNLOGGED"}, []string{"ALTER TABLE idem.TABLE SET LOGGED"},
		[]string{"idem.TABLE is not logged", "ALTER TABLE idem.TABLE SET LOGGED"}, nil},
	{"no primary key", "primary-key", doctor.Problem, []string{"ALTER TABLE idem.TABLE DROP CONSTRAINT TABLE_pkey"}, []string{"ALTER TABLE idem.TABLE ADD PRIMARY KEY (THEKEY)"},
		[]string{"idem.TABLE has no primary key", "ALTER TABLE idem.TABLE ADD PRIMARY KEY (THEKEY)"}, nil},
	{"an invalid primary key", "primary-key", doctor.Problem, []string{"SET allow_system_table_mods = on; UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idem.TABLE_pkey'::regclass"},
		[]string{"REINDEX TABLE idem.TABLE"}, []string{"primary key of idem.TABLE is invalid", "REINDEX TABLE CONCURRENTLY idem.TABLE"}, nil},
	{"an index is missing", "indexes", doctor.Problem, []string{"ALTER INDEX idem.INDEX RENAME TO gone", "DROP INDEX idem.gone"}, []string{"CREATEINDEX"},
		[]string{"the index INDEX of idem.TABLE is missing", "CREATE INDEX CONCURRENTLY INDEX ON idem.TABLE USING btree"}, indexed},
	{"an index is invalid", "indexes", doctor.Problem, []string{"SET allow_system_table_mods = on; UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'idem.INDEX'::regclass"},
		[]string{"REINDEX TABLE idem.TABLE"}, []string{"idem.INDEX is invalid", "REINDEX INDEX CONCURRENTLY idem.INDEX"}, indexed},
	{"a column is missing", "columns", doctor.Problem, []string{"ALTER TABLE idem.TABLE RENAME COLUMN LASTCOLUMN TO gone"}, []string{"ALTER TABLE idem.TABLE RENAME COLUMN gone TO LASTCOLUMN"},
		[]string{"the column LASTCOLUMN of idem.TABLE is missing"}, nil},
	{"a trigger", "triggers", doctor.Warning, []string{"CREATE TRIGGER audit BEFORE INSERT ON idem.TABLE FOR EACH ROW EXECUTE FUNCTION f()"}, []string{"DROP TRIGGER audit ON idem.TABLE"},
		[]string{"audit is on idem.TABLE", "DROP TRIGGER audit ON idem.TABLE"}, nil},
	{"a rule", "rules", doctor.Problem, []string{"CREATE RULE away AS ON DELETE TO idem.TABLE DO INSTEAD NOTHING"}, []string{"DROP RULE away ON idem.TABLE"},
		[]string{"away is on idem.TABLE"}, nil},
	{"published without an identity", "replica-identity", doctor.Problem, []string{"CREATE PUBLICATION p FOR TABLE idem.TABLE", "ALTER TABLE idem.TABLE REPLICA IDENTITY NOTHING"},
		[]string{"DROP PUBLICATION p", "ALTER TABLE idem.TABLE REPLICA IDENTITY DEFAULT"}, []string{"idem.TABLE is published", "55000"}, nil},
	{"row-level security", "row-security", doctor.Problem, []string{"ALTER TABLE idem.TABLE ENABLE ROW LEVEL SECURITY"}, []string{"ALTER TABLE idem.TABLE DISABLE ROW LEVEL SECURITY"},
		[]string{"is on for idem.TABLE", "ROLE"}, nil},
	{"a privilege is missing", "privileges", doctor.Problem, []string{"REVOKE SELECT ON idem.TABLE FROM ROLE"}, []string{"GRANT SELECT ON idem.TABLE TO ROLE"},
		[]string{"ROLE lacks SELECT", "on idem.TABLE", "GRANT SELECT"}, func(table string) bool { return table != "audit" }},
	{"the purge lacks a privilege for rows that are there", "privileges", doctor.Problem, []string{"INSERTROWS", "ANALYZE idem.TABLE", "REVOKE SELECT ON idem.TABLE FROM ROLE"},
		[]string{"GRANT SELECT ON idem.TABLE TO ROLE", "TRUNCATE idem.TABLE"}, []string{"ROLE lacks SELECT", "on idem.TABLE", "GRANT SELECT"},
		func(table string) bool { return table == "audit" }},
	{"all may read", "public-access", doctor.Warning, []string{"GRANT SELECT ON idem.TABLE TO PUBLIC"}, []string{"REVOKE SELECT ON idem.TABLE FROM PUBLIC"},
		[]string{"SELECT on idem.TABLE", "REVOKE ALL ON idem.TABLE FROM PUBLIC"}, nil},
	{"autovacuum is off", "autovacuum", doctor.Problem, []string{"ALTER TABLE idem.TABLE SET (autovacuum_enabled = off)"}, []string{"ALTER TABLE idem.TABLE RESET (autovacuum_enabled)"},
		[]string{"off for idem.TABLE", "ALTER TABLE idem.TABLE RESET (autovacuum_enabled)"}, nil},
	{"no sweep of it has finished", "purge-lag", doctor.Warning, []string{"INSERTROWS", `INSERT INTO idem.sweeps (name, last_finished_at) VALUES ('TABLE', now() - interval '3 days')`},
		[]string{"DELETE FROM idem.sweeps", "TRUNCATE idem.TABLE"}, []string{"no sweep of idem.TABLE has finished for 3 d"}, swept},
	{"a sweep of it never finishes", "purge-lag", doctor.Warning, []string{"INSERTROWS", `INSERT INTO idem.sweeps (name, started_at) VALUES ('TABLE', now() - interval '3 days')`},
		[]string{"DELETE FROM idem.sweeps", "TRUNCATE idem.TABLE"}, []string{"no sweep of idem.TABLE has finished yet"}, swept},
	{"it is not there", "table", doctor.Problem, []string{"ALTER TABLE idem.TABLE RENAME TO away"}, []string{"ALTER TABLE idem.away RENAME TO TABLE"},
		[]string{"no table idem.TABLE"}, nil},
}

// Each fault is made in each table of the schema. The check must be quiet after the cure.
func TestDoctor_FindsFaultsOfEveryTable(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	var tables []string
	rows, err := w.pool.Query(t.Context(), "SELECT relname FROM pg_class WHERE relnamespace = 'idem'::regnamespace AND relkind = 'r' ORDER BY 1")
	if err == nil {
		tables, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil || len(tables) < 11 {
		t.Fatal(tables, err)
	}
	for _, table := range tables {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			w := newTestDB(t)
			w.opts.Role = roleOf(t, w.role(""))
			w.exec("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'", "GRANT USAGE ON SCHEMA idem TO "+w.opts.Role,
				"GRANT ALL ON ALL TABLES IN SCHEMA idem TO "+w.opts.Role, "GRANT ALL ON ALL SEQUENCES IN SCHEMA idem TO "+w.opts.Role)
			written := w.wordsOf(table)
			checks := 0
			for _, s := range sicknesses {
				if s.when != nil && !s.when(table) {
					continue
				}
				checks++
				w.exec(replaceAll(written, s.sql)...)
				w.finds(s.check, s.level, replaceAll(written, s.says)...)
				w.exec(replaceAll(written, s.cure)...)
				w.findsNothing(s.check)
				if t.Failed() {
					t.Fatal(s.name)
				}
			}
			t.Logf("idem.%s: %d checks", table, checks)
		})
	}
}

// wordsOf returns the values of the placeholders for a table.
func (w *testDB) wordsOf(table string) *strings.Replacer {
	w.t.Helper()
	var key, last, name, definition string
	err := w.pool.QueryRow(w.t.Context(), `
		SELECT substring(pg_get_constraintdef(k.oid) FROM '\((.*)\)'), (SELECT attname FROM pg_attribute WHERE attrelid = k.conrelid AND NOT attisdropped ORDER BY attnum DESC LIMIT 1),
			coalesce(min(i.indexrelid::regclass::text), ''), coalesce(min(pg_get_indexdef(i.indexrelid)), '')
		FROM pg_constraint k LEFT JOIN pg_index i ON i.indrelid = k.conrelid AND NOT i.indisprimary
		WHERE k.conrelid = $1::text::regclass AND k.contype = 'p' GROUP BY k.oid, k.conrelid`, "idem."+table).Scan(&key, &last, &name, &definition)
	if err != nil {
		w.t.Fatal(err)
	}
	rows := map[string]string{
		"records":    `INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state) VALUES ('s', 'k', '', gen_random_uuid(), now(), now(), 'completed')`,
		"operations": `INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, state, undoing, step, seq, since, wake_at, tries, attempts, ended_at) VALUES (gen_random_uuid(), 's', 'k', '', 'n', 1, now(), 1, 'completed', false, '', 0, now(), now(), 0, 0, now())`,
		"inbox":      `INSERT INTO idem.inbox (consumer, source, id, hash, state, since, expires_at) VALUES ('c', 's', 'i', '', 'handled', now(), now())`,
		"audit":      `INSERT INTO idem.audit VALUES (now(), gen_random_uuid(), 'retry', 'running', 'r', '', '', NULL, '', '', '', '', '', '', '')`,
		"published":  `INSERT INTO idem.published VALUES (gen_random_uuid(), 1, now(), now(), now(), 't', 'k', 't')`,
	}[table]
	return strings.NewReplacer("TABLE_pkey", table+"_pkey", "CREATEINDEX", definition, "INSERTROWS", rows, "idem.TABLE", "idem."+table, "'TABLE'", "'"+table+"'",
		"LASTCOLUMN", last, "TO TABLE", "TO "+table, "THEKEY", key, "INDEX ON", strings.TrimPrefix(name, "idem.")+" ON", "INDEX of", strings.TrimPrefix(name, "idem.")+" of",
		"idem.INDEX", name, "ROLE", w.opts.Role)
}

func replaceAll(words *strings.Replacer, texts []string) (written []string) {
	for _, text := range texts {
		written = append(written, words.Replace(text))
	}
	return written
}
