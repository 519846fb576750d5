package purge

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
)

// ownServer starts a server for one test.
func ownServer(t *testing.T, settings ...string) (*pgxpool.Pool, *pgserver.Server) {
	t.Helper()
	s := pgtest.Server(t, settings...)
	if err := schema.UpAt(t.Context(), s.DSN()); err != nil {
		t.Fatal(err)
	}
	return pgtest.Open(t, s.DSN()), s
}

// The test uses a replica in recovery, which differs from a session that a setting makes read-only.
func TestOnce_ReplicaAllowsOnlyADryRun(t *testing.T) {
	t.Parallel()
	pool, primary := ownServer(t)
	h := &house{t, pool}
	h.records(100, "expired", "completed", "2 hours")
	replica, err := primary.Standby(t.Context(), "replica", pgserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { replica.Close() })

	p := pgtest.Open(t, replica.DSN())
	o := swift()
	o.DryRun = true
	rep := h.onceOn(p, o)
	h.wantCounts(rep, Finished, Counts{Deleted: 100})
	if _, err := Once(t.Context(), p, swift()); err == nil || !strings.Contains(err.Error(), "primary") {
		t.Errorf("%v", err)
	}

	// A portion on a replica is retried, and works once the replica has been promoted.
	portion, engine := h.portion(t)
	engine.Pool = p
	if _, err := portion.delete(t.Context(), engine, db.Sweeper{Name: "records", ID: newID()}, db.Position{}); err == nil || !retryable(err) {
		t.Errorf("%v", err)
	}
}
