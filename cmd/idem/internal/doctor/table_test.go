package doctor_test

import (
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/purge"
)

func TestDoctor_FindsBloatAndDeadRows(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.opts.Limits.BloatedSize = 1
	w.opts.Limits.DeadRows = 1000
	w.exec("ALTER TABLE idem.records SET (autovacuum_enabled = off)", `
		INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, status, body)
		SELECT 'tenant', md5(n::text), '\x00', gen_random_uuid(), now(), now(), 'completed', 200, convert_to(repeat(md5(n::text), 3), 'UTF8')
		FROM generate_series(1, 6000) n`, "ANALYZE idem.records")
	w.findsNothing("bloat")
	w.findsNothing("index-bloat")
	w.findsNothing("dead-rows")
	w.exec("DELETE FROM idem.records WHERE key > '2'")
	w.eventuallyFinds("dead-rows", doctor.Warning, "last vacuumed: never", "VACUUM idem.records")
	w.exec("INSERT INTO idem.records SELECT 'z', 'z', hash, execution_id, created_at, expires_at, state FROM idem.records LIMIT 1", "VACUUM (ANALYZE) idem.records")
	w.finds("bloat", doctor.Warning, "VACUUM FULL")
	w.finds("index-bloat", doctor.Warning, "REINDEX INDEX CONCURRENTLY")
}

func TestBloat_IsUnknownWithoutStatistics(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.opts.Limits.BloatedSize = 1
	w.exec("ALTER TABLE idem.records SET (autovacuum_enabled = off)", `
		INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		VALUES ('s', 'k', '', gen_random_uuid(), now(), now(), 'completed')`)
	w.finds("bloat", doctor.Unknown, "ANALYZE idem.records")
}

func TestDoctor_FindsASweepThatDoesNotFinish(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("purge-lag")
	w.exec("ALTER TABLE idem.records SET (autovacuum_enabled = off)", `
		INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
		SELECT 's', n::text, '', gen_random_uuid(), now(), now() + '1 h', 'completed' FROM generate_series(1, 100) n`, "ANALYZE idem.records")
	w.findsNothing("purge-lag")
	w.exec("UPDATE idem.records SET expires_at = now() - interval '3 days' + interval '1 s' * key::int", "ANALYZE idem.records")
	w.finds("purge-lag", doctor.Warning, "was never purged", "expired 2 d 23 h ago", "idem purge")

	if _, err := purge.Once(t.Context(), w.pool, purge.Options{Share: 1}); err != nil {
		t.Fatal(err)
	}
	w.findsNothing("purge-lag")
	w.exec("UPDATE idem.sweeps SET last_finished_at = now() - interval '30 hours'")
	w.finds("purge-lag", doctor.Warning, "has finished for 1 d 6 h", "purge.Run")
	w.exec("UPDATE idem.sweeps SET started_at = now() - interval '3 hours', progressed_at = now() - interval '2 hours', waiting_for = 'replication'")
	w.finds("purge-lag", doctor.Warning, "waits for: replication", "for 2 h", "xmin-*")
}
