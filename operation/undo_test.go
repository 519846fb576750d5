package operation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

var declined = idem.Response{Status: 402, Body: []byte(`"declined"`)}

// undoBy returns an UndoTx that leaves a row.
func undoBy[T any](step string) operation.Undo[T] {
	return operation.UndoTx(func(tx pgx.Tx, _ T) error { return writeUndo(step)(tx) })
}

// trip books three things and then comes to an end that the test chooses.
func (s *shop) trip(end func(op *operation.Op) (idem.Response, error)) *operation.Definition[string] {
	return operation.Define("trip", func(op *operation.Op, _ string) (idem.Response, error) {
		if _, err := operation.Tx(op, "flight", write("flight"), undoBy[string]("cancel flight")); err != nil {
			return idem.Response{}, err
		}
		refund := operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, key, _ string) error {
			_, err := s.bank.charge(ctx, key)
			return errors.Join(err, writeOutside(ctx, s, "refund"))
		})
		if _, err := operation.Call(op, "pay", operation.Keyed(time.Hour), s.bank.charge, refund); err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Tx(op, "hotel", write("hotel"), undoBy[string]("cancel hotel")); err != nil {
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

func TestReject_UndoesAndIsReplayed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := s.trip(func(op *operation.Op) (idem.Response, error) {
		if err := op.Checkpoint(); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(declined)
	})
	for _, replayed := range []bool{false, true} {
		res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
		if err != nil || !res.Rejected || res.Replayed != replayed || res.Status != 402 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if diff := cmp.Diff([]string{"flight", "hotel", "cancel hotel", "refund", "cancel flight"}, s.did()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if state := s.text(`select state || ' ' || undoing from idem.operations`); state != "failed true" {
		t.Errorf("the operation is %s", state)
	}
}

func TestFinal_UndoesAndFreesTheKey(t *testing.T) {
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

// The undos run from the last step to the first. One that fails for good parks the operation. After Retry it runs again with those behind it.
func TestUndo_ThatFailsParksUntilRetry(t *testing.T) {
	t.Parallel()
	failed := fmt.Errorf("\x00%w\xff", errDeclined)
	for name, undo := range map[string]func(fails *bool) operation.Undo[string]{
		"UndoCall": func(fails *bool) operation.Undo[string] {
			return operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error {
				if *fails {
					return operation.Final(failed)
				}
				return nil
			})
		},
		"UndoTx": func(fails *bool) operation.Undo[string] {
			return operation.UndoTx(func(pgxTx, string) error {
				if *fails {
					return failed
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			fails := true
			d := operation.Define("stuck", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Call(op, "reserve", operation.Keyed(time.Hour), s.bank.charge, undoBy[string]("release"))
				if err != nil {
					return idem.Response{}, err
				}
				if _, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge, undo(&fails)); err != nil {
					return idem.Response{}, err
				}
				_, err = operation.Call(op, "ship", operation.Keyed(time.Hour), s.bank.charge, undoBy[string]("unship"))
				return idem.Response{}, errors.Join(err, idem.Reject(declined))
			})
			for range 2 {
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
				var parked *operation.ParkedError
				if !errors.As(err, &parked) || parked.Reason != operation.ReasonUndoFailed || parked.Step != "charge" || idem.Retryable(err) {
					t.Fatal(err)
				}
				if !strings.HasPrefix(parked.ReasonText, `the undo of step "charge" has failed: the card is declined`) {
					t.Error(parked.ReasonText)
				}
			}
			status, err := operation.Show(t.Context(), s.pool, s.operationID())
			if err != nil || !slices.Equal(status.Undos[max(0, len(status.Undos)-2):], []string{"charge", "reserve"}) || status.Kept != nil {
				t.Errorf("%+v, %v", status, err)
			}
			fails = false
			if err := operation.Retry(t.Context(), s.pool, s.operationID()); err != nil {
				t.Fatal(err)
			}
			if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || !res.Rejected {
				t.Errorf("%+v, %v", res, err)
			}
			if diff := cmp.Diff([]string{"unship", "release"}, s.did()); diff != "" {
				t.Errorf("(-want +committed):\n%s", diff)
			}
		})
	}
}

// The outcome of an UndoCall is recorded although its caller leaves: otherwise one that is Once would be in doubt.
func TestUndo_OutcomeIsKeptWhenTheCallerLeaves(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	d := operation.Define("trip", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "flight", operation.Keyed(time.Hour), s.bank.charge, undoBy[string]("cancel flight"))
		if err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Call(op, "hotel", operation.Keyed(time.Hour), s.bank.charge,
			operation.UndoCall(operation.Once, func(ctx context.Context, _, _ string) error {
				defer leave()
				return writeOutside(ctx, s, "cancel hotel")
			}))
		return idem.Response{}, errors.Join(err, idem.Reject(declined))
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
