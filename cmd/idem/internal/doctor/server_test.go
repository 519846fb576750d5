package doctor_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/lab/pgserver"
	"github.com/idem-go/idem/lab/schema"
)

// These faults would disturb other tests, so they are made in turn on a separate server: prepared
// transactions, slots, a full lock table, a standby that delays vacuum, and autovacuum off.
func TestDoctor_FindsFaultsOfTheServer(t *testing.T) {
	t.Parallel()
	server := startServer(t, "max_prepared_transactions=2", "wal_level=logical", "max_locks_per_transaction=10", "autovacuum=off", "full_page_writes=off")
	if err := schema.UpAt(t.Context(), server.DSN()); err != nil {
		t.Fatal(err)
	}
	w := testDBAt(t, server.DSN())
	w.opts.Limits.OldTransaction = time.Millisecond
	w.opts.Limits.OldXmin = 1

	w.finds("autovacuum", doctor.Problem, "does not run", "autovacuum = on")
	w.finds("durability", doctor.Warning, "full_page_writes is off", "full_page_writes = on")

	w.findsNothing("xmin-prepared")
	w.session("BEGIN", "CREATE TABLE t ()", "PREPARE TRANSACTION 'forgotten'")
	w.finds("xmin-prepared", doctor.Warning, `"forgotten"`, "ROLLBACK PREPARED")
	w.exec("ROLLBACK PREPARED 'forgotten'")
	w.findsNothing("xmin-prepared")

	w.findsNothing("xmin-slot")
	w.exec("SELECT pg_create_logical_replication_slot('abandoned', 'pgoutput')")
	w.finds("xmin-slot", doctor.Warning, `"abandoned" has no consumer`, "pg_drop_replication_slot('abandoned')")
	w.exec("SELECT pg_drop_replication_slot('abandoned')")

	w.findsNothing("lock-table")
	holder := w.session("BEGIN", "SELECT pg_advisory_xact_lock(n) FROM generate_series(1, 200) n")
	w.finds("lock-table", doctor.Warning, "53200", "max_locks_per_transaction")
	holder.Close(context.Background())

	standby, err := server.Standby(t.Context(), "reporting", pgserver.Options{Settings: []string{
		"fsync=off", "max_connections=20", "max_prepared_transactions=2", "max_locks_per_transaction=10", "hot_standby_feedback=on", "wal_receiver_status_interval=1s",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { standby.Close() })
	behind := testDBAt(t, standby.DSN())
	behind.finds("primary", doctor.Problem, "this is a standby", "target_session_attrs=read-write")
	query, err := pgx.Connect(t.Context(), standby.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { query.Close(context.Background()) })
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"} {
		if _, err := query.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		w.exec("SELECT pg_current_xact_id()")
	}
	w.eventuallyFinds("xmin-standby", doctor.Warning, `"reporting"`, "hot_standby_feedback = off")
}
