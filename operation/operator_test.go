package operation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// unsure is an operation that parks at a call that is Once. Its undo writes, and so does its end.
func unsure(s *shop, calls *int, fail *error) *operation.Definition[int] {
	return operation.Define("unsure", func(op *operation.Op, _ int) (idem.Response, error) {
		if _, err := operation.Tx(op, "before", write("before"), undoBy[string]("undo before")); err != nil {
			return idem.Response{}, err
		}
		value, err := operation.Call(op, "call", operation.Once, func(context.Context, string) (string, error) {
			*calls++
			return "by the call", *fail
		}, undoBy[string]("undo call"))
		if err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Tx(op, "after", write(value))
		return created, err
	})
}

func TestParked_ResolveRetryCancel(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		do    func(ctx context.Context, s *shop, id string) error
		calls int
		want  []string
		err   error
	}{
		{"it has happened", func(ctx context.Context, s *shop, id string) error {
			return operation.Resolve(ctx, s.pool, id, operation.Happened("by a person"))
		}, 1, []string{"before", "by a person"}, nil},
		{"it has not happened", func(ctx context.Context, s *shop, id string) error {
			return operation.Resolve(ctx, s.pool, id, operation.NotHappened)
		}, 1, []string{"before", "undo before"}, operation.ErrNotHappened},
		{"it was refused", func(ctx context.Context, s *shop, id string) error {
			return operation.Resolve(ctx, s.pool, id, operation.Refused(errDeclined))
		}, 1, []string{"before", "undo before"}, errDeclined},
		{"it was rejected", func(ctx context.Context, s *shop, id string) error {
			return operation.Resolve(ctx, s.pool, id, operation.Refused(idem.Reject(declined)))
		}, 1, []string{"before", "undo before"}, nil},
		{"not known", func(ctx context.Context, s *shop, id string) error {
			return operation.Retry(ctx, s.pool, id)
		}, 1, []string{"before"}, operation.ErrParked},
		{"not known, and not wanted any more", func(ctx context.Context, s *shop, id string) error {
			return operation.Cancel(ctx, s.pool, id)
		}, 1, []string{"before"}, operation.ErrParked},
		{"it has happened, and is not wanted any more", func(ctx context.Context, s *shop, id string) error {
			return errors.Join(operation.Resolve(ctx, s.pool, id, operation.Happened("by a person")), operation.Cancel(ctx, s.pool, id))
		}, 1, []string{"before", "undo call", "undo before"}, operation.ErrCanceled},
		{"it has not happened, and is not wanted any more", func(ctx context.Context, s *shop, id string) error {
			return errors.Join(operation.Resolve(ctx, s.pool, id, operation.NotHappened), operation.Cancel(ctx, s.pool, id))
		}, 1, []string{"before", "undo before"}, operation.ErrCanceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			calls, fail := 0, errTimeout
			d := unsure(s, &calls, &fail)
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
				t.Fatal(err)
			}
			id := s.text(`select id::text from idem.operations`)
			status, err := operation.Show(t.Context(), s.pool, id)
			if err != nil || status.State != operation.StateParked || status.Step != "call" || status.Reason != operation.ReasonCallInDoubt || status.Name != "unsure" {
				t.Errorf("%+v, %v", status, err)
			}
			fail = nil
			if err := test.do(t.Context(), s, id); err != nil {
				t.Fatal(err)
			}
			res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			if !errors.Is(err, test.err) || res.Rejected != (test.name == "it was rejected") {
				t.Errorf("got %+v, %v, want %v", res, err, test.err)
			}
			if calls != test.calls {
				t.Errorf("%d calls, want %d", calls, test.calls)
			}
			if diff := cmp.Diff(test.want, s.did()); diff != "" {
				t.Errorf("(-want +committed):\n%s", diff)
			}
		})
	}
}

// The call in progress when Cancel comes ends, and its outcome is recorded, although the commit behind it is refused.
func TestCancel_RecordsTheCallInProgress(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]operation.Policy{"Keyed": operation.Keyed(time.Hour), "Once": operation.Once} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			b := newBlocked(s, policy)
			answers := b.call(t.Context(), s, idem.WithWait(limit))
			await(t, "the call", b.begun)
			id := s.operationID()
			if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
				t.Fatal(err)
			}
			b.release <- nil
			if a := await(t, "the answer", answers); !errors.Is(a.err, operation.ErrCanceled) {
				t.Errorf("the caller got %v", a.err)
			}
			if n, asked := s.bank.keys(); n != 1 || asked != 1 {
				t.Errorf("the bank saw %d keys in %d requests", n, asked)
			}
			status, err := operation.Show(t.Context(), s.pool, id)
			if err != nil || status.State != operation.StateUndone || !slices.Equal(status.Kept, []string{"before", "call"}) {
				t.Errorf("%+v, %v", status, err)
			}
			if did := fmt.Sprint(s.did()); did != "[before]" {
				t.Errorf("%s is committed", did)
			}
			if entry, err := idem.Lookup(t.Context(), s.pool, scope, "k"); err != nil || entry.State != idem.StateUnused {
				t.Errorf("the key is %+v, %v", entry, err)
			}
		})
	}
}

func TestOperator_RefusesUnknownAndEnded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := s.checkout().Do(t.Context(), s.pool, scope, "k", hashA, "book"); err != nil {
		t.Fatal(err)
	}
	id := s.text(`select id::text from idem.operations`)
	for _, unknown := range []string{"", "'; drop table", "11111111-2222-4333-8444-555555555555"} {
		if err := operation.Retry(t.Context(), s.pool, unknown); !errors.Is(err, operation.ErrUnknownOperation) {
			t.Errorf("Retry of %q: %v", unknown, err)
		}
	}
	for name, err := range map[string]error{
		"Retry":   operation.Retry(t.Context(), s.pool, id),
		"Cancel":  operation.Cancel(t.Context(), s.pool, id),
		"Resolve": operation.Resolve(t.Context(), s.pool, id, operation.Happened(1)),
	} {
		if !errors.Is(err, operation.ErrNotParked) {
			t.Errorf("%s of an operation that has ended: %v", name, err)
		}
	}
}

// The call has ended, and its undo has parked the operation: there is no key to ask for.
func TestStatus_HasNoKindWhereNothingIsInDoubt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "call", operation.Keyed(time.Hour), s.bank.charge,
			operation.UndoTx(func(pgx.Tx, string) error { return errors.New("it cannot be undone") }))
		return errors.Join(err, operation.Final(errDeclined))
	})
	_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
	parked := (*operation.ParkedError)(nil)
	if !errors.As(err, &parked) {
		t.Fatal(err)
	}
	if status, err := operation.Show(t.Context(), s.pool, parked.OperationID); err != nil || status.Step != "call" || status.Kind != "" {
		t.Errorf("%+v, %v", status, err)
	}
}

// A finding is about the record that the person has seen. Meanwhile another person may have had the operation go on.
func TestResolve_RefusesAStaleFinding(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls, fail := 0, errTimeout
	d := unsure(s, &calls, &fail)
	run := func() {
		t.Helper()
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
			t.Fatal(err)
		}
	}
	run()
	id := s.operationID()
	first, err := operation.Show(t.Context(), s.pool, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := operation.Retry(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	run()
	for _, finding := range []operation.Finding{operation.NotHappened, operation.Happened("by a person")} {
		if err := operation.Resolve(t.Context(), s.pool, id, finding.As(first)); !errors.Is(err, operation.ErrNotParked) {
			t.Errorf("a finding that is stale: %v", err)
		}
	}
	second, err := operation.Show(t.Context(), s.pool, id)
	if err != nil || second.State != operation.StateParked || calls != 1 {
		t.Fatalf("%+v, %v, %d calls", second, err, calls)
	}
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened("by a person").As(second)); err != nil {
		t.Error(err)
	}
}

func TestShow_HasScopeAndSteps(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls, fail := 0, errTimeout
	if _, err := unsure(s, &calls, &fail).Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	status, err := operation.Show(t.Context(), s.pool, s.text(`select id::text from idem.operations`))
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, step := range status.Steps {
		if age := status.WakeAt.Sub(step.RecordedAt); age < -time.Minute || age > time.Minute {
			t.Errorf("%s was recorded at %v", step.Name, step.RecordedAt)
		}
		steps = append(steps, fmt.Sprint(step.Kind, " ", step.Name, " ", step.Outcome, " ", step.Undos))
	}
	if diff := cmp.Diff([]string{"tx before done 1", "call call begun 1"}, steps); diff != "" || status.Scope != scope {
		t.Errorf("scope %q; steps (-want +got):\n%s", status.Scope, diff)
	}
}

// A call that was working on the operation, and has lost it, does not begin the work anew when the operation is canceled.
func TestCancel_EndsACallThatHasLostTheOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asked := operation.Asked(func(context.Context, string) (string, bool, error) { return "", false, nil })
	slow, quick := newBlocked(s, asked), newBlocked(s, asked)
	answers := slow.call(t.Context(), s, idem.WithWait(limit))
	await(t, "the call", slow.begun)
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set owner = null, epoch = epoch + 1`); err != nil { // as if it were dead
		t.Fatal(err)
	}
	if err := operation.Cancel(t.Context(), s.pool, s.operationID()); err != nil {
		t.Fatal(err)
	}
	shopOn(t, s.dsn).work(t, quick)
	eventually(t, "the operation to be undone", func() bool { return s.count(`select count(*) from idem.operations where state = 'undone'`) == 1 })
	slow.release <- nil // its commit is refused
	if a := await(t, "the answer", answers); !errors.Is(a.err, operation.ErrCanceled) {
		t.Errorf("%+v", a)
	}
	if n := quick.calls.Load(); n > 0 || s.count(`select count(*) from idem.operations`) != 1 {
		t.Errorf("%d calls behind Cancel", n)
	}
}

func TestCallKey_IsTheKeyOfTheCall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asked := ""
	d := operation.Define("asked", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "call", operation.Once, func(_ context.Context, key string) (int, error) {
			asked = key
			return 0, errTimeout
		})
		return idem.Response{}, err
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	if key := operation.CallKey(s.text(`select id::text from idem.operations`), "call", "call"); key != asked {
		t.Errorf("CallKey is %q, and the call was made with %q", key, asked)
	}
}
