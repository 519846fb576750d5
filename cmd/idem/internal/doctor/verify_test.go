package doctor_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
	"github.com/idem-go/idem/lab/waiting"
)

// verified returns the findings of Verify as "check: what": the notes, and all others.
func (w *testDB) verified(against *testDB) (found, notes []string) {
	w.t.Helper()
	opts := w.opts
	if against != nil {
		opts.Against = against.pool
	}
	results, err := doctor.Verify(w.t.Context(), w.pool, opts, func(string, int, int) {})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range results {
		for _, f := range r.Findings {
			if f.Remedy == "" {
				w.t.Errorf("%s: no remedy", r.Check)
			}
			if text := r.Check + ": " + f.What; f.Level == doctor.Note {
				notes = append(notes, text)
			} else {
				found = append(found, text)
			}
		}
	}
	return found, notes
}

// wantVerified fails the test unless the findings start with these texts, in this order.
func (w *testDB) wantVerified(against *testDB, beginnings ...string) {
	w.t.Helper()
	found, _ := w.verified(against)
	ok := len(found) == len(beginnings)
	for i := range beginnings {
		ok = ok && strings.HasPrefix(found[i], beginnings[i])
	}
	if !ok {
		w.t.Errorf("found:\n%s\nwant:\n%s", strings.Join(found, "\n"), strings.Join(beginnings, "\n"))
	}
}

func (w *testDB) count(sql string) (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), sql).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (w *testDB) eventually(what string, done func() bool) {
	w.t.Helper()
	waiting.Until(w.t, what, done)
}

// written inserts rows as a program leaves them: two keys, an operation in a call, and three
// messages, the last of which is published.
const written = `
	INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status) VALUES
		('s', 'a', '', 'aaaaaaaa-0000-0000-0000-000000000001', now(), now() + '1 h', 'completed', 201),
		('s', 'b', '', 'aaaaaaaa-0000-0000-0000-000000000002', now(), now() + '1 h', 'running', NULL);
	INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, epoch, owner, state, undoing, kind, step, seq, since, wake_at, tries, attempts)
		VALUES ('aaaaaaaa-0000-0000-0000-000000000002', 's', 'b', '', 'n', 1, now(), 1, nextval('idem.instances'), 'running', false, 'call', 'charge', 2, now(), now(), 0, 0);
	INSERT INTO idem.steps (operation_id, seq, kind, name, recorded_at, outcome) VALUES ('aaaaaaaa-0000-0000-0000-000000000002', 1, 'tx', 'reserve', now(), 'done');
	INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type) SELECT now(), gen_random_uuid(), 't', 'k', 't' FROM generate_series(1, 3);
	DELETE FROM idem.outbox WHERE seq = 3;`

// statements returns the statements of a code block of docs/operate.md, from the line with this
// beginning.
func statements(t *testing.T, begin string) []string {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```sql\n"+begin)
	block, _, _ = strings.Cut(block, "```")
	if !found {
		t.Fatalf("docs/operate.md has no statements that begin with %q", begin)
	}
	var all []string
	for line := range strings.Lines(begin + block) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// A takeover follows the steps of the docs. Logical replication copies rows but no sequences.
// Verify must find that before a message is published out of order.
func TestVerify_OfATakeoverByLogicalReplication(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	old, next := startServer(t, "wal_level=logical"), startServer(t)
	if err := schema.UpAt(t.Context(), old.DSN()); err != nil {
		t.Fatal(err)
	}
	blue, green := testDBAt(t, old.DSN()), testDBAt(t, next.DSN())
	copySchema(t, old, next)
	blue.exec(strings.Split(written, ";\n")...)
	blue.exec(statements(t, "CREATE PUBLICATION takeover")...)
	address, err := url.Parse(blue.dsn)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := address.User.Password()
	conninfo := fmt.Sprintf("host=127.0.0.1 port=%s user=postgres password=%s dbname=postgres", address.Port(), password)
	for _, statement := range statements(t, "CREATE SUBSCRIPTION takeover") {
		green.exec(strings.ReplaceAll(statement, "host=old dbname=shop", conninfo))
	}
	green.eventually("the tables to be copied", func() bool {
		return green.count("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") == 0
	})
	green.wantVerified(blue, "sequences: sequence numbers in idem.outbox go up to 2, and the sequence idem.outbox_seq_seq is at 0", "sequences: numbers of instances go up to 1",
		"same-sequences: the sequence idem.outbox_seq_seq is at 0, and in the other database at 3", "same-sequences: the sequence idem.instances is at 0")

	blue.exec("INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state) VALUES ('s', 'late', '', gen_random_uuid(), now(), now() + '1 h', 'completed')")
	green.eventually("what comes later", func() bool { return green.count("SELECT count(*) FROM idem.records") == 3 })
	for _, statement := range statements(t, "SELECT setval('idem.outbox_seq_seq'") {
		green.exec(strings.ReplaceAll(statement, "1234567", "3"))
	}
	green.wantVerified(blue)
	if _, output := green.verified(blue); !slices.Contains(output, "subscription: the subscription takeover still replicates into idem's tables") {
		t.Error(output)
	}
	green.exec("ALTER SUBSCRIPTION takeover DISABLE")
	if _, output := green.verified(blue); slices.Contains(output, "subscription: the subscription takeover still replicates into idem's tables") {
		t.Error(output)
	}
	green.exec("INSERT INTO idem.outbox (created_at, id, aggregatetype, aggregateid, type) VALUES (now(), gen_random_uuid(), 't', 'k', 't')")
	if n := green.count("SELECT max(seq) FROM idem.outbox"); n < 4 {
		t.Errorf("a message added after the takeover has number %d", n)
	}
	green.wantVerified(blue, "same-rows: idem.outbox has 3 rows here and 2 in the other database")
}

// copySchema copies the schema without rows.
func copySchema(t *testing.T, from, to *pgserver.Server) {
	t.Helper()
	dump := exec.CommandContext(t.Context(), filepath.Join(from.Bin(), "pg_dump"), "--schema-only", from.DSN())
	schema, err := dump.Output()
	if err != nil {
		t.Fatal(err)
	}
	restore := exec.CommandContext(t.Context(), filepath.Join(to.Bin(), "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", to.DSN())
	restore.Stdin = bytes.NewReader(schema)
	if output, err := restore.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

func TestVerify_FindsMissingRows(t *testing.T) {
	t.Parallel()
	original, copied := newTestDB(t), newTestDB(t)
	restore := func(w *testDB) {
		w.exec("TRUNCATE idem.records, idem.operations, idem.steps, idem.outbox")
		w.exec(strings.Split(strings.ReplaceAll(written, "gen_random_uuid()", "md5(random()::text)::uuid"), ";\n")...)
		w.exec("TRUNCATE idem.outbox")
	}
	restore(original)
	for _, test := range []struct {
		name, sql string
		want      []string
	}{
		{"nothing", "SELECT 1", nil},
		{"a record", "DELETE FROM idem.records WHERE key = 'a'", []string{"same-rows: idem.records has 1 rows here and 2 in the other database"}},
		{"the outcome of a record", "UPDATE idem.records SET status = 500 WHERE key = 'a'", []string{"same-rows: idem.records has 2 rows in both databases, and they differ"}},
		{"the operation of a key", "DELETE FROM idem.operations", []string{
			"records-without-operation: 1 keys are in progress for an operation that is missing or has ended: their callers get ErrInProgress, and no process resumes them (operations aaaaaaaa-0000-0000-0000-000000000002)",
			"steps-without-operation: steps or signals exist of 1 operations", "same-rows: idem.operations has 0 rows here and 1 in the other database"}},
		{"the key of an operation", "DELETE FROM idem.records WHERE key = 'b'", []string{
			"operations-without-record: 1 operations are in progress without a record of their key", "same-rows: idem.records has 1 rows here and 2 in the other database"}},
		{"a step", "DELETE FROM idem.steps", []string{"same-rows: idem.steps has 0 rows here and 1 in the other database"}},
		{"a column", "ALTER TABLE idem.sweeps DROP COLUMN kept", []string{"columns: the column kept of idem.sweeps is missing", "same-migrations: the other database has columns that this one lacks: idem.sweeps.kept bigint"}},
		{"what an fn has left behind", "UPDATE idem.records SET state = 'processing' WHERE key = 'a'", []string{"left-behind: 1 records are left", "same-rows: idem.records has 2 rows in both databases"}},
		{"a grant", "GRANT SELECT ON idem.records TO pg_monitor", []string{"same-owners: in the other database, records is owned by postgres and granted as by default, but not in this one"}},
	} {
		restore(copied)
		copied.exec(test.sql)
		copied.wantVerified(original, test.want...)
		if test.name == "a column" {
			copied.exec("ALTER TABLE idem.sweeps ADD COLUMN kept bigint")
		}
		if t.Failed() {
			t.Fatal(test.name)
		}
	}
}

// A restored database may be complete in itself, and lack what came after the restore point.
func TestVerify_OfAPointInTimeRestore(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	before := startServer(t)
	if err := schema.UpAt(t.Context(), before.DSN()); err != nil {
		t.Fatal(err)
	}
	w := testDBAt(t, before.DSN())
	w.exec(strings.Split(written, ";\n")...)
	restored, err := before.Standby(t.Context(), "restored", pgserver.Options{Settings: []string{"fsync=off", "max_connections=20",
		"recovery_target_name=noon", "recovery_target_action=promote"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := restored.Close(); err != nil {
			t.Error(err)
		}
	})
	w.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state) VALUES ('s', 'before noon', '', gen_random_uuid(), now(), now() + '1 h', 'completed')`,
		"SELECT pg_create_restore_point('noon')",
		`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state) VALUES ('s', 'after noon', '', gen_random_uuid(), now(), now() + '1 h', 'completed')`)
	r := testDBAt(t, restored.DSN())
	r.eventually("the restore to be open", func() bool { return r.count("SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE 1 END") == 1 })
	if n := r.count("SELECT count(*) FROM idem.records WHERE key LIKE '% noon'"); n != 1 {
		t.Fatalf("%d records", n)
	}
	r.wantVerified(nil)
	r.wantVerified(w, "same-rows: idem.records has 3 rows here and 4 in the other database")
}
