package promises_test

import (
	"context"
	"errors"
	"testing"

	"github.com/idem-go/idem"
)

// Postgres reports no error when a trigger skips a row. A call without a record must not succeed,
// because the next caller would not find the record.
func TestRecordThatATriggerKeepsFromBeingCompletedIsNoSuccess(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, when := range map[string]string{
		"before update": "before update on idem.records for each row",
		"before insert": "before insert on idem.records for each row when (new.state <> 'processing')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(t)
			_, err := l.pool.Exec(ctx, `create function nothing() returns trigger language plpgsql as 'begin return null; end';
				create trigger nothing `+when+` execute function nothing()`)
			if err != nil {
				t.Fatal(err)
			}
			if res, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k")); !errors.Is(err, idem.ErrTxEnded) {
				t.Errorf("Do: %+v, %v", res, err)
			}
			tx := l.begin(ctx)
			if res, err := idem.DoTx(ctx, tx, scope, "joined", hashA, l.charge("joined")); !errors.Is(err, idem.ErrTxEnded) {
				t.Errorf("DoTx: %+v, %v", res, err)
			}
			_ = tx.Commit(ctx)
			l.wantNone("joined")
		})
	}
}
