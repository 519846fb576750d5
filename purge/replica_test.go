package purge

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/migrate"
	"github.com/idem-go/idem/internal/pgserver"
	"github.com/idem-go/idem/internal/pgtest"
	"github.com/idem-go/idem/internal/store"
)

// A replica in recovery, which is not the same as a session that is read-only by a setting.
func TestReplicaIsCountedByADryRunAndIsNoPlaceForAPurge(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts servers of its own")
	}
	found, err := pgserver.Find(os.Getenv("IDEM_TEST_POSTGRES_BIN"))
	if err != nil {
		if os.Getenv("IDEM_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	server := func(s *pgserver.Server, err error) *pgserver.Server {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	pool := func(s *pgserver.Server) *pgxpool.Pool { return pgtest.Open(t, s.DSN()) }
	primary := server(pgserver.Start(t.Context(), pgserver.Options{Bin: found[0].Dir, Settings: []string{"fsync=off"}}))
	if err := migrate.UpAt(t.Context(), primary.DSN()); err != nil {
		t.Fatal(err)
	}
	h := &house{t, pool(primary)}
	h.records(100, "expired", "completed", "2 hours")
	replica := server(primary.Standby(t.Context(), "replica", pgserver.Options{}))

	p := pool(replica)
	o := swift()
	o.DryRun = true
	rep, err := Once(t.Context(), p, o)
	if err != nil {
		t.Fatal(err)
	}
	h.wantCounts(rep, Finished, Counts{Deleted: 100})
	if _, err := Once(t.Context(), p, swift()); err == nil || !strings.Contains(err.Error(), "primary") {
		t.Errorf("%v", err)
	}

	// A portion that finds itself on a replica goes on as soon as that is a primary.
	portion, engine := h.portion(t)
	engine.Pool = p
	if _, err := portion.delete(t.Context(), engine, store.Sweeper{Name: "records", ID: newID()}, store.Position{}); err == nil || !passes(err) {
		t.Errorf("%v", err)
	}
}
