package operation_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// The call that is settled is the last step: nothing is left that could be refused.
func TestACancelledOperationIsUndoneAlsoWhenItHasNothingMoreToDo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("nothing more", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "before"); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "undo before", writeUndo("undo before")); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "call", operation.Once, func(context.Context, string) (string, error) { return "", errTimeout })
		if err != nil {
			return idem.Response{}, err
		}
		return created, operation.UndoTx(op, "undo call", writeUndo("undo call"))
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	id := s.text(`select id::text from idem.operations`)
	err := errors.Join(operation.Resolve(t.Context(), s.pool, id, operation.Happened("by a person")), operation.Cancel(t.Context(), s.pool, id))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrCancelled) {
		t.Errorf("the caller was told %v", err)
	}
	if diff := cmp.Diff([]string{"before", "undo call", "undo before"}, s.did()); diff != "" {
		t.Errorf("(-want +committed):\n%s", diff)
	}
}
