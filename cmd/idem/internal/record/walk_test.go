package record

import (
	"testing"
	"time"

	"github.com/idem-go/idem/lab/pgtest"
)

// A walk reads all partitions, although they differ in size.
func TestWalk_ReadsEachBlockOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for _, sql := range []string{
		"CREATE TABLE idem.parted (LIKE idem.records, CONSTRAINT parted_pkey PRIMARY KEY (scope, key)) PARTITION BY LIST (scope)",
		"DROP TABLE idem.records", "ALTER TABLE idem.parted RENAME TO records",
		"CREATE TABLE idem.large PARTITION OF idem.records FOR VALUES IN ('large')", "CREATE TABLE idem.small PARTITION OF idem.records FOR VALUES IN ('small')",
		`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state)
			SELECT CASE WHEN n % 10 = 1 THEN 'small' ELSE 'large' END, n::text, '', gen_random_uuid(), now(), now() + '1 h', CASE WHEN n % 7 = 1 THEN 'processing' ELSE 'completed' END
			FROM generate_series(1, 7000) n`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, blocks := range []int64{1, 7, 4096} {
		found := map[string]int{}
		err := walk(t.Context(), pool, time.Minute, blocks, leftBehind(func(r Record) { found[r.Key]++ }), func(done, blocks int64) {
			if done >= blocks || blocks < 50 {
				t.Errorf("progress %d of %d", done, blocks)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != 1000 {
			t.Errorf("%d blocks at a time: found %d of 1000", blocks, len(found))
		}
		for key, times := range found {
			if times != 1 {
				t.Errorf("%d blocks at a time: %s is found %d times", blocks, key, times)
			}
		}
	}
}

func TestAfterAll_IsTheNextPrefix(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{
		"tenant-1/": "tenant-10", "a": "b", "é": "ê", "\ud7ff": "\ue000", "a\U0010ffff": "b", "\U0010ffff": "",
	} {
		if got := afterAll(prefix); got != want {
			t.Errorf("after the prefix %q: %q, want %q", prefix, got, want)
		}
	}
}
