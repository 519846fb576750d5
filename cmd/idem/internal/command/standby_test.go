package command_test

import (
	"testing"
	"time"

	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/lab/schema"
)

// newPair starts a primary and a standby. A test can make the replication synchronous.
func newPair(t *testing.T) (primary, standby *pgserver.Server) {
	t.Helper()
	settings := []string{"fsync=off", "max_connections=20"}
	primary, err := pgserver.Start(t.Context(), pgserver.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, primary)
	if err := schema.UpAt(t.Context(), primary.DSN()); err != nil {
		t.Fatal(err)
	}
	standby, err = primary.Standby(t.Context(), "standby", pgserver.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, standby)
	return primary, standby
}

func closeAfter(t *testing.T, server *pgserver.Server) {
	t.Helper()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A standby does not have the locks and sessions of the primary. A command that needs them fails.
func TestStandby_IsNotTakenForThePrimary(t *testing.T) {
	t.Parallel()
	primary, standby := newPair(t)
	t.Run("eviction", func(t *testing.T) { evictWithoutStandby(t, primary, standby) })
	d := &harness{t: t, dsn: standby.DSN(), pool: pgtest.Open(t, primary.DSN())}
	release := d.holdKey()
	for _, args := range [][]string{{"stuck", "--older", "1ms"}, {"explain", scope, "under way"}, {"stats"}, {"outbox", "stats"}, {"operation", "list"}} {
		d.idem(args...).want(t, 6, "this is a standby (last change: ", "ask the primary")
	}
	for _, args := range [][]string{{"list"}, {"dead", "list"}, {"inbox", "list"}, {"outbox", "list"}} {
		d.idem(args...).want(t, 0, "this is a standby (last change: ")
	}
	release()
	d.dsn = primary.DSN()
	d.idem("stuck", "--older", "1ms").want(t, 0, "nothing is stuck")
}

// evictWithoutStandby evicts while the synchronous standby is stopped. The command does not cancel
// a COMMIT that waits for a standby. It reports an unknown outcome.
func evictWithoutStandby(t *testing.T, primary, standby *pgserver.Server) {
	d := &harness{t: t, dsn: primary.DSN(), pool: pgtest.Open(t, primary.DSN())}
	const id = "0193c1a0-5a9e-7bbd-8e01-3f1f5f3b2a10"
	d.exec(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state) VALUES ('s', 'k', '', $1, now(), now() + '1 h', 'completed')`, id)
	d.exec("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
	d.exec("SELECT pg_reload_conf()")
	if err := standby.Stop(pgserver.Fast); err != nil {
		t.Fatal(err)
	}
	// Wait until the sessions have the new setting.
	for waits := false; !waits; time.Sleep(10 * time.Millisecond) {
		if err := d.pool.QueryRow(t.Context(), "SELECT current_setting('synchronous_standby_names') = 'standby'").Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	d.idem("evict", "s", "k", "--execution", id, "--yes").want(t, 1, "the server has not answered COMMIT")
	var waiting, records int
	err := d.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'), (SELECT count(*) FROM idem.records)`).Scan(&waiting, &records)
	if err != nil || waiting != 1 || records != 1 {
		t.Errorf("%d sessions wait for the standby, %d records are seen, %v", waiting, records, err)
	}
	if err := standby.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for records != 0 {
		if err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM idem.records").Scan(&records); err != nil {
			t.Fatal(err)
		}
	}
	d.exec("ALTER SYSTEM RESET synchronous_standby_names")
	d.exec("SELECT pg_reload_conf()")
}
