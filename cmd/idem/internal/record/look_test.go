package record

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/lab/pgtest"
)

func TestReadOnly_SeesOneSnapshot(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	var before, after int
	err := ReadOnly(t.Context(), pool, time.Minute, func(tx pgx.Tx) error {
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM idem.leases").Scan(&before); err != nil {
			return err
		}
		if _, err := pool.Exec(t.Context(), "INSERT INTO idem.leases VALUES (1, now())"); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM idem.leases").Scan(&after); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "DELETE FROM idem.leases")
		return err
	})
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "25006" || before != after {
		t.Errorf("%v; %d leases, then %d", err, before, after)
	}
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM idem.leases").Scan(&after); err != nil || after != 1 {
		t.Errorf("%d leases, %v", after, err)
	}
}

// A portion scans at most MaxScanned operations, whatever the size of the table.
func TestOperationsPage_ScansABoundedNumber(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	const total = 2*MaxScanned + 10
	_, err := pool.Exec(t.Context(), `INSERT INTO idem.operations (id, scope, key, hash, name, ttl, created_at, input, epoch, state, undoing, step, seq, kind, since, wake_at, tries, attempts)
		SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 's', n::text, '', CASE WHEN n % 7000 = 0 THEN 'rare' ELSE 'common' END, 1, now(), '', 1, state, false, '', 0, '', now() - n * interval '1 s', now() - n * interval '1 s', 0, 0
		FROM (SELECT n, CASE WHEN n > $1 THEN 'undone' ELSE 'parked' END AS state FROM generate_series(1, $1 + 3) n) AS o`, total)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		state, name     string
		found, portions int
	}{{"undone", "", 3, 3}, {"parked", "rare", 2, 3}, {"completed", "", 0, 3}, {"running", "", 0, 1}} {
		found, portions := 0, 0
		for mark, more := (*Mark)(nil), true; more; portions++ {
			err := ReadOnly(t.Context(), pool, time.Minute, func(tx pgx.Tx) error {
				some, next, err := OperationsPage(t.Context(), tx, want.state, want.name, mark, 50)
				found += len(some)
				mark, more = next, next != nil
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if found != want.found || portions != want.portions {
			t.Errorf("%s %s: %d found in %d pages, want %d in %d", want.state, want.name, found, portions, want.found, want.portions)
		}
	}
}
