package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// Cancel ends a pause. The next caller does not wait for it either, if the first one leaves during the undo.
func TestCancel_EndsAPause(t *testing.T) {
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
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
					operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error {
						if refunds++; refunds == 1 {
							leave()
							return errTimeout
						}
						return nil
					}))
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
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)); !errors.Is(err, operation.ErrCanceled) || refunds != 2 {
				t.Errorf("after %d refunds: %v", refunds, err)
			}
		})
	}
}

// untilEnd has callers go on with the only operation until it runs no more.
func (s *shop) untilEnd(do func()) operation.Status {
	s.t.Helper()
	for range 20 {
		status, err := operation.Show(s.t.Context(), s.pool, s.operationID())
		if err != nil {
			s.t.Fatal(err)
		}
		if status.State != operation.StateRunning {
			return status
		}
		_, _ = s.pool.Exec(s.t.Context(), `update idem.operations set wake_at = clock_timestamp()`) // the pause is over
		safely(do)
	}
	s.t.Fatal("the operation does not end")
	return operation.Status{}
}

// A function that panics behind its last recorded step, or before it, is canceled.
func TestCancel_FunctionThatPanics(t *testing.T) {
	t.Parallel()
	for where, test := range map[string]struct {
		early bool
		want  []string
		kept  string
	}{
		"behind its recorded steps": {false, []string{"reserve", "refund"}, "[reserve]"},
		"before its recorded steps": {true, []string{"reserve"}, "[reserve charge]"},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			first := true
			d := operation.Define("mistaken", func(op *operation.Op, _ int) (idem.Response, error) {
				if test.early && !first {
					panic("a mistake of the program")
				}
				first = false
				if err := localStep(op, "reserve"); err != nil {
					return idem.Response{}, err
				}
				if _, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge, undoBy[string]("refund")); err != nil {
					return idem.Response{}, err
				}
				panic("a mistake of the program")
			})
			do := func() { _, _ = d.Do(t.Context(), s.pool, scope, "k", hashA, 0) }
			safely(do)
			id := s.operationID()
			if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
				t.Fatal(err)
			}
			status := s.untilEnd(do)
			if test.early {
				if status.State != operation.StateParked || status.Reason != operation.ReasonFunctionFailed {
					t.Errorf("it is %+v", status)
				}
				if err := operation.Cancel(t.Context(), s.pool, id, operation.WithoutCode()); err != nil {
					t.Fatal(err)
				}
				status = s.untilEnd(do)
			}
			if got := fmt.Sprint(status.Kept); status.State != operation.StateUndone || got != test.kept {
				t.Errorf("it is %+v", status)
			}
			if diff := cmp.Diff(test.want, s.did()); diff != "" {
				t.Errorf("(-want +committed):\n%s", diff)
			}
		})
	}
}

// WithoutCode does not leave a call in doubt: a person resolves it first.
func TestCancel_WithoutCodeParksAtACallInDoubt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	d := operation.Define("doubted", func(op *operation.Op, _ int) (idem.Response, error) {
		if ctx.Err() != nil {
			return idem.Response{}, errors.New("a mistake of the program")
		}
		_, err := operation.Call(op, "charge", operation.Once, func(ctx context.Context, key string) (string, error) {
			_, _ = s.bank.charge(ctx, key)
			leave()
			return "", ctx.Err()
		})
		return created, err
	})
	_, _ = d.Do(ctx, s.pool, scope, "k", hashA, 0)
	id := s.operationID()
	do := func() { _, _ = d.Do(t.Context(), s.pool, scope, "k", hashA, 0) }
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	if status := s.untilEnd(do); status.Reason != operation.ReasonFunctionFailed || status.Step != "charge" || status.Kind != "call" {
		t.Fatalf("it is %+v", status)
	}
	if err := operation.Cancel(t.Context(), s.pool, id, operation.WithoutCode()); err != nil {
		t.Fatal(err)
	}
	if status := s.untilEnd(do); status.Reason != operation.ReasonCallInDoubt || status.Step != "charge" || status.Kind != "call" {
		t.Fatalf("without code, it is %+v", status)
	}
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened("receipt")); err != nil {
		t.Fatal(err)
	}
	if status := s.untilEnd(do); status.State != operation.StateUndone || fmt.Sprint(status.Kept) != "[charge]" || status.Steps[0].Outcome != "resolved" {
		t.Errorf("resolved, it is %+v", status)
	}
}

func TestDo_ResponseTooLargeIsRetried(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	body := make([]byte, 2000)
	d := operation.Define("large", func(op *operation.Op, _ int) (idem.Response, error) {
		return idem.Response{Status: 200, Body: body}, outsideStep(op, "charge")
	})
	do := func() error {
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithMaxResponse(1000), idem.WithWait(limit))
		return err
	}
	if err := do(); !errors.Is(err, idem.ErrResponseTooLarge) {
		t.Errorf("got %v", err)
	}
	if state := s.text(`select state from idem.operations`); state != "running" {
		t.Errorf("it is %s", state)
	}
	body = body[:1000]
	if err := do(); err != nil {
		t.Error(err)
	}
}
