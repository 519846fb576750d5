package promises_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

func TestExecutionIDIsTheSameInFnItsSavepointsTheResultAndTheRecord(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	seen := map[string]bool{}
	for _, key := range []string{"a", "b", "rejected"} {
		var ids []string
		note := func(tx pgx.Tx) {
			id, ok := idem.ExecutionID(tx)
			if !ok || id == "" {
				t.Error("no execution id")
			}
			ids = append(ids, id)
		}
		res, err := idemDo(ctx, l.pool, scope, key, hashA, func(tx pgx.Tx) (idem.Response, error) {
			note(tx)
			err := pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
				note(sp)
				return pgx.BeginFunc(ctx, sp, func(sp pgx.Tx) error { note(sp); return nil })
			})
			note(tx)
			if key == "rejected" {
				return ok, idem.Reject(ok)
			}
			return ok, err
		})
		if err != nil {
			t.Fatal(err)
		}
		replay, err := idemDo(ctx, l.pool, scope, key, hashA, l.charge(key))
		if err != nil {
			t.Fatal(err)
		}
		var recorded string
		if err := l.pool.QueryRow(ctx, "select execution_id::text from idem.records where key = $1", key).Scan(&recorded); err != nil {
			t.Fatal(err)
		}
		for _, id := range append(ids, res.ExecutionID, replay.ExecutionID) {
			if id != recorded {
				t.Errorf("%s: execution ids %q, %q, %q differ from the recorded %q", key, ids, res.ExecutionID, replay.ExecutionID, recorded)
			}
		}
		if seen[recorded] {
			t.Error("two executions have one id")
		}
		seen[recorded] = true
	}
	tx, err := l.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	if id, ok := idem.ExecutionID(tx); ok || id != "" {
		t.Errorf("a transaction without an execution has the id %q", id)
	}
	if id, ok := idem.ExecutionID(nil); ok || id != "" {
		t.Errorf("no transaction has the id %q", id)
	}
}

func TestExecutionIDOfAJoinedCallIsRecorded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	tx := l.begin(ctx)
	res, err := idem.DoTx(ctx, tx, scope, "k", hashA, l.charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if n := l.count("select count(*) from ledger join idem.records using (key, execution_id) where execution_id = $1", res.ExecutionID); n != 1 {
		t.Error("fn, the result and the record do not agree on the execution id")
	}
}
