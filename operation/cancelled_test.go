package operation_test

import (
	"context"
	"errors"
	"testing"
	"time"

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

// An operation may wait for a month, and whoever cancels it does not.
func TestCancelEndsAPause(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(*operation.Op) error{
		"Sleep": func(op *operation.Op) error { return operation.Sleep(op, "pause", 20*time.Hour) },
		"Await": func(op *operation.Op) error {
			_, err := operation.Await[bool](op, "pause", 20*time.Hour)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("pausing", func(op *operation.Op, _ string) (idem.Response, error) {
				if err := localStep(op, "before"); err != nil {
					return idem.Response{}, err
				}
				if err := operation.UndoTx(op, "undo before", writeUndo("undo before")); err != nil {
					return idem.Response{}, err
				}
				return created, pause(op)
			})
			if err := operation.Cancel(t.Context(), s.pool, s.waits(t, d, "k")); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)); !errors.Is(err, operation.ErrCancelled) {
				t.Error(err)
			}
			if diff := cmp.Diff([]string{"before", "undo before"}, s.did()); diff != "" {
				t.Errorf("(-want +committed):\n%s", diff)
			}
		})
	}
}
