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

// Whoever goes on with the undoing does not wait either.
func TestCancelEndsAPauseAlsoForWhoeverGoesOnWithTheUndoing(t *testing.T) {
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
			ctx, leave := context.WithCancel(t.Context())
			refunds := 0
			d := operation.Define("pausing", func(op *operation.Op, _ string) (idem.Response, error) {
				if _, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge); err != nil {
					return idem.Response{}, err
				}
				err := operation.Undo(op, "refund", operation.Keyed(time.Hour), func(context.Context, string) error {
					if refunds++; refunds == 1 {
						leave()
						return errTimeout
					}
					return nil
				})
				if err != nil {
					return idem.Response{}, err
				}
				return created, pause(op)
			})
			if err := operation.Cancel(t.Context(), s.pool, s.waits(t, d, "k")); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Do(ctx, s.pool, scope, "k", hashA, "", idem.WithWait(0)); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)); !errors.Is(err, operation.ErrCancelled) || refunds != 2 {
				t.Errorf("after %d refunds: %v", refunds, err)
			}
		})
	}
}
