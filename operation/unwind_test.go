package operation_test

import (
	"context"
	"errors"
	"strings"
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

// An operation may wait for a month, and the person who cancels it does not.
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

// The process that goes on with the undoing does not wait either.
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

// The mistake in the code is why it is cancelled: nothing but other code would end it otherwise.
func TestCancelEndsAnOperationWhoseFunctionFails(t *testing.T) {
	t.Parallel()
	fails := map[string]func() error{
		"an error": func() error { return errors.New("a mistake of the program") },
		"a panic":  func() error { panic("a mistake of the program") },
	}
	for name, fail := range fails {
		for where, test := range map[string]struct {
			covered, early bool
			want           []string
			reason         string
		}{
			"behind the undo":           {true, false, []string{"reserve", "refund"}, ""},
			"in front of what is done":  {true, true, []string{"reserve"}, "before it asks for step"},
			"behind a call without one": {false, false, []string{"reserve"}, "which no undo takes back"},
		} {
			t.Run(name+" "+where, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				first := true
				d := operation.Define("mistaken", func(op *operation.Op, _ int) (idem.Response, error) {
					if test.early && !first {
						return idem.Response{}, fail()
					}
					first = false
					if err := localStep(op, "reserve"); err != nil {
						return idem.Response{}, err
					}
					if err := outsideStep(op, "charge"); err != nil {
						return idem.Response{}, err
					}
					if test.covered {
						if err := operation.UndoTx(op, "refund", writeUndo("refund")); err != nil {
							return idem.Response{}, err
						}
					}
					return idem.Response{}, fail()
				})
				do := func() error {
					var err error
					safely(func() { _, err = d.Do(t.Context(), s.pool, scope, "k", hashA, 0) })
					return err
				}
				_ = do()
				id := s.operationID()
				if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
					t.Fatal(err)
				}
				state := func() string { return s.text(`select state from idem.operations`) }
				goOn := func() {
					t.Helper()
					for i := 0; state() == "running"; i++ {
						if i == 20 {
							t.Fatal("it goes on for ever")
						}
						_, _ = s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`) // the pause is over
						_ = do()
					}
				}
				goOn()
				if test.reason == "" {
					if got := state(); got != "undone" {
						t.Errorf("it is %s", got)
					}
				} else {
					if reason := s.text(`select coalesce(reason, '') from idem.operations`); state() != "parked" || !strings.Contains(reason, test.reason) {
						t.Errorf("it is %s: %s", state(), reason)
					}
					if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
						t.Fatal(err)
					}
					goOn()
					if got := state(); got != "undone" {
						t.Errorf("accepted, it is %s: %s", got, s.text(`select coalesce(reason, '') from idem.operations`))
					}
				}
				if diff := cmp.Diff(test.want, s.did()); diff != "" {
					t.Errorf("(-want +committed):\n%s", diff)
				}
			})
		}
	}
}

// What a person is told to do about it must not make the record forget that the bank was asked.
func TestFunctionThatFailsInFrontOfACallInDoubtParksWhatIsCancelledWithTheDoubt(t *testing.T) {
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
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	fail := func(most int) operation.Status {
		t.Helper()
		for i := 0; ; i++ {
			status, err := operation.Show(t.Context(), s.pool, id)
			if err != nil || i > most {
				t.Fatalf("it goes on for ever: %+v, %v", status, err)
			}
			if status.State != "running" {
				return status
			}
			_, _ = s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`) // the pause is over
			_, _ = d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
		}
	}
	status := fail(20)
	if status.State != "parked" || status.Step != "charge" || status.Kind != "call" || !strings.Contains(status.Reason, "Resolve") {
		t.Fatalf("it is %+v", status)
	}
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	if status := fail(20); status.State != "parked" || status.Kind != "call" {
		t.Fatalf("cancelled again, it is %+v", status)
	}
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened("receipt")); err != nil {
		t.Fatal(err)
	}
	if got := s.text(`select outcome from idem.steps where name = 'charge'`); got != "resolved" {
		t.Errorf("the call is on record as %q", got)
	}
}

func TestResponseThatCannotBeStoredIsAFailureOfTheFunction(t *testing.T) {
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
