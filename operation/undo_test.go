package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

var declined = idem.Response{Status: 402, Body: []byte(`"declined"`)}

// trip books three things and then comes to an end that the test chooses.
func (s *shop) trip(end func(op *operation.Op) (idem.Response, error)) *operation.Definition[string] {
	return operation.Define("trip", func(op *operation.Op, _ string) (idem.Response, error) {
		if _, err := operation.Tx(op, "flight", write("flight")); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "cancel flight", writeUndo("cancel flight")); err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Call(op, "pay", operation.Keyed(time.Hour), s.bank.charge); err != nil {
			return idem.Response{}, err
		}
		err := operation.Undo(op, "refund", operation.Keyed(time.Hour), func(ctx context.Context, key string) error {
			_, err := s.bank.charge(ctx, key)
			return errors.Join(err, writeOutside(ctx, s, "refund"))
		})
		if err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Tx(op, "hotel", write("hotel")); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "cancel hotel", writeUndo("cancel hotel")); err != nil {
			return idem.Response{}, err
		}
		return end(op)
	})
}

// writeOutside leaves a row in a transaction of its own, as another system would.
func writeOutside(ctx context.Context, s *shop, step string) error {
	_, err := s.pool.Exec(ctx, `insert into done (step) values ($1)`, step)
	return err
}

func TestRejectUndoesWhatIsCommittedInReverseAndIsFinal(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		checkpoint bool
		want       []string
	}{
		{"what was not committed is rolled back, and needs no undo", false, []string{"flight", "refund", "cancel flight"}},
		{"what was committed is undone", true, []string{"flight", "hotel", "cancel hotel", "refund", "cancel flight"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := s.trip(func(op *operation.Op) (idem.Response, error) {
				if test.checkpoint {
					if err := op.Checkpoint(); err != nil {
						return idem.Response{}, err
					}
				}
				return idem.Response{}, idem.Reject(declined)
			})
			for _, replayed := range []bool{false, true} {
				res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
				if err != nil || !res.Rejected || res.Replayed != replayed || res.Status != 402 {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			if diff := cmp.Diff(test.want, s.did()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if state := s.text(`select state || ' ' || undoing from idem.operations`); state != "failed true" {
				t.Errorf("the operation is %s", state)
			}
		})
	}
}

func TestErrorThatIsFinalUndoesAndFreesTheKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	fail := true
	d := s.trip(func(op *operation.Op) (idem.Response, error) {
		if fail {
			_, err := operation.Call(op, "seat", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
				return 0, operation.Final(errDeclined)
			})
			return idem.Response{}, fmt.Errorf("no seat: %w", err)
		}
		return created, nil
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, errDeclined) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"flight", "hotel", "cancel hotel", "refund", "cancel flight"}, s.did()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	first := s.text(`select id::text from idem.operations where state = 'undone'`)
	fail = false
	res, err := d.Do(t.Context(), s.pool, scope, "k", hashB, "")
	if err != nil || res.Replayed || res.ExecutionID == first {
		t.Errorf("the key is not free: %+v, %v", res, err)
	}
	if n, asked := s.bank.keys(); n != 3 || asked != 3 { // pay, refund, and pay of the second operation
		t.Errorf("the bank saw %d keys in %d requests", n, asked)
	}
}

// With Tx alone nothing is committed that would have to be undone.
func TestRejectBeforeAnythingIsCommittedRollsBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("reject", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "reserve"); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "release", writeUndo("release")); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(declined)
	})
	for range 2 {
		if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || !res.Rejected {
			t.Fatal(res, err)
		}
	}
	if did := s.did(); len(did) != 0 {
		t.Errorf("%v is committed", did)
	}
}

func TestUndoThatFailsForGoodParksTheOperation(t *testing.T) {
	t.Parallel()
	for name, undo := range map[string]func(*operation.Op) error{
		"Undo": func(op *operation.Op) error {
			return operation.Undo(op, "refund", operation.Keyed(time.Hour), func(context.Context, string) error { return operation.Final(errDeclined) })
		},
		"UndoTx": func(op *operation.Op) error {
			return operation.UndoTx(op, "refund", func(pgxTx) error { return fmt.Errorf("\x00%w\xff", errDeclined) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("stuck", func(op *operation.Op, _ int) (idem.Response, error) {
				if err := outsideStep(op, "charge"); err != nil {
					return idem.Response{}, err
				}
				if err := undo(op); err != nil {
					return idem.Response{}, err
				}
				return idem.Response{}, idem.Reject(declined)
			})
			for range 2 {
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
				var parked *operation.ParkedError
				if !errors.As(err, &parked) || !errors.Is(err, operation.ErrParked) || idem.Retryable(err) {
					t.Fatal(err)
				}
			}
			if state := s.text(`select state || ': ' || reason from idem.operations`); !strings.HasPrefix(state, `parked: undo "refund" has failed: the card is declined`) {
				t.Error(state)
			}
		})
	}
}

// What takes a call back is registered behind it, and is on record no sooner than the next commit. A run that ends before that
// must not leave word that the operation is undone: the process that goes on would no longer ask what else there is to undo.
func TestUndoIsNotLostIfTheRunEndsBeforeItIsOnRecord(t *testing.T) {
	t.Parallel()
	type run struct {
		*shop
		*operation.Op
		leave func()
	}
	for _, test := range []struct {
		name string
		end  func(r *run) error // what goes wrong once, between the decision and its commit
	}{
		{"the caller leaves", func(r *run) error { r.leave(); return nil }},
		{"an undo behind it fails, and the operation is parked", func(r *run) error {
			return operation.UndoTx(r.Op, "not yet", func(pgx.Tx) error { return errDeclined })
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			runs := 0
			d := operation.Define("charge", func(op *operation.Op, _ string) (idem.Response, error) {
				runs++
				if _, err := operation.Call(op, "pay", operation.Keyed(time.Hour), s.bank.charge); err != nil {
					return idem.Response{}, err
				}
				err := operation.Undo(op, "refund", operation.Keyed(time.Hour), func(ctx context.Context, _ string) error {
					return writeOutside(ctx, s, "refund")
				})
				if err == nil && runs == 1 {
					err = test.end(&run{s, op, leave})
				}
				if err != nil {
					return idem.Response{}, err
				}
				return idem.Response{}, idem.Reject(declined)
			})
			if res, err := d.Do(ctx, s.pool, scope, "k", hashA, ""); err == nil {
				t.Fatalf("%+v", res)
			}
			id := s.text(`select id::text from idem.operations`)
			if s.text(`select state from idem.operations`) == "parked" {
				if err := operation.Retry(t.Context(), s.pool, id); err != nil {
					t.Fatal(err)
				}
			}
			res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit))
			if err != nil || !res.Rejected {
				t.Fatalf("%+v, %v", res, err)
			}
			if diff := cmp.Diff([]string{"refund"}, s.did()); diff != "" {
				t.Errorf("what was paid is not paid back: (-want +got):\n%s", diff)
			}
			if n, asked := s.bank.keys(); n != 1 || asked != 1 {
				t.Errorf("the bank was asked %d times under %d keys", asked, n)
			}
		})
	}
}

// What an undo outside has done is kept like what a call has returned: otherwise one that is Once would be in doubt.
func TestUndoThatHasHappenedIsNotForgottenWhenItsCallerLeaves(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	d := operation.Define("trip", func(op *operation.Op, _ string) (idem.Response, error) {
		if _, err := operation.Call(op, "flight", operation.Keyed(time.Hour), s.bank.charge); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "cancel flight", writeUndo("cancel flight")); err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Call(op, "hotel", operation.Keyed(time.Hour), s.bank.charge); err != nil {
			return idem.Response{}, err
		}
		err := operation.Undo(op, "cancel hotel", operation.Once, func(ctx context.Context, _ string) error {
			defer leave()
			return writeOutside(ctx, s, "cancel hotel")
		})
		if err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(declined)
	})
	if _, err := d.Do(ctx, s.pool, scope, "k", hashA, ""); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit)); err != nil || !res.Rejected {
		t.Fatalf("%+v, %v", res, err)
	}
	if diff := cmp.Diff([]string{"cancel hotel", "cancel flight"}, s.did()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
