package operation_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

func TestExec(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("exec", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := operation.Exec(op, "reserve", writeUndo("reserve")); err != nil {
			return idem.Response{}, err
		}
		err := operation.Exec(op, "refuse", func(tx pgx.Tx) error { return errors.Join(writeUndo("refuse")(tx), errDeclined) })
		if !errors.Is(err, errDeclined) {
			t.Errorf("the function is given %v", err)
		}
		if err := op.Checkpoint(); err != nil {
			return idem.Response{}, err
		}
		if kind := s.text(`select string_agg(kind || ' ' || name || ' ' || outcome, ', ' order by seq) from idem.steps`); kind != "tx reserve done, tx refuse failed" {
			t.Errorf("recorded: %s", kind)
		}
		return created, nil
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"reserve"}, s.did()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
