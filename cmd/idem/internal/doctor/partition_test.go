package doctor_test

import (
	"fmt"
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

// partition replaces the empty table of records by one with four partitions.
func (w *testDB) partition() {
	w.t.Helper()
	w.exec("CREATE TABLE idem.parted (LIKE idem.records, CONSTRAINT parted_pkey PRIMARY KEY (scope, key)) PARTITION BY HASH (scope, key)",
		"DROP TABLE idem.records", "ALTER TABLE idem.parted RENAME TO records")
	for part := range 4 {
		w.exec(fmt.Sprintf("CREATE TABLE idem.records_%[1]d PARTITION OF idem.records FOR VALUES WITH (MODULUS 4, REMAINDER %[1]d)", part))
	}
}

func TestDoctor_FindsFaultsOfASinglePartition(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.partition()
	w.opts.Limits.DeadRows = 100
	for _, check := range []string{"table", "columns", "primary-key", "collation", "indexes", "unlogged", "autovacuum", "dead-rows", "privileges", "row-security", "triggers", "rules"} {
		w.findsNothing(check)
	}
	w.exec("ALTER TABLE idem.records_1 SET UNLOGGED")
	w.finds("unlogged", doctor.Problem, "idem.records_1 is not logged", "ALTER TABLE idem.records_1 SET LOGGED")
	w.exec("ALTER TABLE idem.records_2 SET (autovacuum_enabled = off)")
	w.finds("autovacuum", doctor.Problem, "off for idem.records_2", "ALTER TABLE idem.records_2 RESET")
	w.exec("CREATE INDEX of_ours ON idem.records_3 (expires_at)")
	w.finds("indexes", doctor.Warning, "idem.of_ours does not belong to idem")
	w.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		SELECT 's', n::text, '', gen_random_uuid(), now(), now(), 'completed' FROM generate_series(1, 2000) n`, "DELETE FROM idem.records_2")
	w.eventuallyFinds("dead-rows", doctor.Warning, "idem.records_2 has about", "VACUUM idem.records_2")
}

// The size of a partitioned table is that of its partitions, and decides whether it is scanned.
func TestDoctor_ScansALargePartitionedTableOnRequest(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.partition()
	w.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		SELECT 's', n::text, '', gen_random_uuid(), now(), now() + '1 h', CASE n WHEN 77 THEN 'processing' ELSE 'completed' END FROM generate_series(1, 100) n`)
	w.finds("left-behind", doctor.Warning, "1 records are left")
	w.opts.Limits.ScanUpTo = 1
	w.finds("left-behind", doctor.Unknown, "--scan")
	w.opts.Scan = true
	w.finds("left-behind", doctor.Warning, "1 records are left")
}

func TestDoctor_ReportsAPartitioningInProgress(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.exec("CREATE FUNCTION idem.records_parted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
		"CREATE TRIGGER idem_parted AFTER INSERT OR UPDATE OR DELETE ON idem.records FOR EACH ROW EXECUTE FUNCTION idem.records_parted()")
	w.finds("triggers", doctor.Warning, "idem partition is copying idem.records", "idem partition --abort records")
}
