package doctor_test

import (
	"testing"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
)

func TestDoctorFindsATableThatIsMostlyEmptyOrDead(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.opts.Limits.BloatedSize = 1
	w.opts.Limits.DeadRows = 1000
	w.exec("ALTER TABLE idem.records SET (autovacuum_enabled = off)", `
		INSERT INTO idem.records (scope, key, hash, operation_id, created_at, expires_at, state, status, body)
		SELECT 'tenant', md5(n::text), '\x00', gen_random_uuid(), now(), now(), 'completed', 200, convert_to(repeat(md5(n::text), 3), 'UTF8')
		FROM generate_series(1, 20000) n`, "ANALYZE idem.records")
	w.quiet("bloat")
	w.quiet("index-bloat")
	w.quiet("dead-rows")
	w.exec("DELETE FROM idem.records WHERE key > '2'")
	w.eventuallyFinds("dead-rows", doctor.Warning, "last vacuumed: never", "VACUUM idem.records")
	w.exec("INSERT INTO idem.records SELECT 'z', 'z', hash, operation_id, created_at, expires_at, state FROM idem.records LIMIT 1", "VACUUM (ANALYZE) idem.records")
	w.finds("bloat", doctor.Warning, "VACUUM FULL")
	w.finds("index-bloat", doctor.Warning, "REINDEX INDEX CONCURRENTLY")
}

func TestBloatIsUnknownWithoutStatistics(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.opts.Limits.BloatedSize = 1
	w.exec("ALTER TABLE idem.records SET (autovacuum_enabled = off)", `
		INSERT INTO idem.records (scope, key, hash, operation_id, created_at, expires_at, state)
		VALUES ('s', 'k', '', gen_random_uuid(), now(), now(), 'completed')`)
	w.finds("bloat", doctor.Unknown, "ANALYZE idem.records")
}
