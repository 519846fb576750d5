package doctor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/cmd/idem/internal/doctor"
	"github.com/idem-go/idem/operation"
)

func TestDoctor_FindsRecordsLeftBehind(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("left-behind")
	_, err := idem.Do(t.Context(), w.pool, "s", "k", idem.HashBytes(), func(tx pgx.Tx) (idem.Response, error) {
		_, err := tx.Exec(context.Background(), "COMMIT")
		return idem.Response{}, err
	})
	if err == nil {
		t.Fatal("the command succeeded")
	}
	w.finds("left-behind", doctor.Warning, "1 records are left", "idem stuck")
	w.opts.Limits.ScanUpTo = 1
	w.finds("left-behind", doctor.Unknown, "--scan")
	w.opts.Scan = true
	w.finds("left-behind", doctor.Warning, "1 records are left")
}

// The records of a key are counted in a small table and estimated in a large one.
func TestDoctor_FindsRecordsSealedWithOtherKeys(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("seal-keys")
	for key, n := range map[string]int{"NULL": 100, "'2026-10'": 300, "'2026-11'": 600} {
		w.exec(fmt.Sprintf(`INSERT INTO idem.records (scope, key, hash, execution_id, created_at, expires_at, state, sealed_by)
			SELECT 's', %[1]d::text || '/' || n, '', gen_random_uuid(), now(), now() + '1 h', 'completed', %[2]s FROM generate_series(1, %[1]d) n`, n, key))
	}
	w.exec("ANALYZE idem.records")
	for _, walked := range []int64{64 << 20, 1} {
		w.opts.Limits.ScanUpTo = walked
		w.opts.SealKeys = nil
		w.finds("seal-keys", doctor.Note, `"2026-10" (30 %), "2026-11" (60 %)`, "--seal-keys")
		w.finds("seal-keys", doctor.Note, "about 10 % of the records are plain")
		w.opts.SealKeys = []string{"2026-11"}
		w.finds("seal-keys", doctor.Warning, `about 30 % of the records are sealed with the key "2026-10"`, "ErrUnreadable", "until the longest TTL")
	}
}

// start starts an operation that no process executes.
func (w *testDB) start(key string) {
	w.t.Helper()
	refund := operation.Define("refund", func(*operation.Op, int) (idem.Response, error) { return idem.Response{}, nil })
	err := pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) error {
		_, err := refund.Start(w.t.Context(), tx, "s", key, idem.HashBytes(), 1)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestDoctor_WarnsOfDueWorkWithoutWorker(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("worker")
	w.start("k")
	w.finds("worker", doctor.Warning, "1 operations are due, and no Worker runs", "operation.Worker")
	w.exec("INSERT INTO idem.leases VALUES (4711, now() + interval '1 h')") // a Worker behind a pooler has a lease
	w.findsNothing("worker")
	w.exec("INSERT INTO idem.relays VALUES ('', 0, 4711, now(), 1)") // the lease belongs to a relay
	w.finds("worker", doctor.Warning, "no Worker runs")
	w.exec("DELETE FROM idem.leases")

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	other := operation.Define("other", func(*operation.Op, int) (idem.Response, error) { return idem.Response{}, nil })
	go func() { ended <- operation.NewWorker(w.pool, operation.WorkerConfig{}, other).Run(ctx) }()
	for deadline := time.Now().Add(10 * time.Second); len(w.findings("worker")) > 0 && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
	}
	w.findsNothing("worker")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDoctor_FindsStuckOperations(t *testing.T) {
	t.Parallel()
	w := newTestDB(t)
	w.findsNothing("operations")
	w.start("due")
	w.start("parked")
	w.findsNothing("operations")
	w.exec("UPDATE idem.operations SET wake_at = now() - interval '1 h'", "UPDATE idem.operations SET state = 'parked', reason = 'call_in_doubt', reason_step = 'charge', reason_text = 'it is not known' WHERE key = 'parked'")
	w.finds("operations", doctor.Warning, "1 operations are due and no process executes them, the first for 1 h", "idem stuck")
	w.finds("operations", doctor.Warning, "1 operations are parked (call_in_doubt: 1)", "idem stuck")
}
