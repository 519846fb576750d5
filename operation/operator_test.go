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

// unsure is an operation that is parked at a call that is Once. Its undo writes, and so does its end.
func unsure(s *shop, calls *int, fail *error) *operation.Definition[int] {
	return operation.Define("unsure", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "before"); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "undo before", writeUndo("undo before")); err != nil {
			return idem.Response{}, err
		}
		value, err := operation.Call(op, "call", operation.Once, func(context.Context, string) (string, error) {
			*calls++
			return "by the call", *fail
		})
		if err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "undo call", writeUndo("undo call")); err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Tx(op, "after", write(value))
		return created, err
	})
}

func TestPersonResolvesRetriesOrCancelsWhatIsParked(t *testing.T) {
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
		}, 2, []string{"before", "by the call"}, nil},
		{"not known", func(ctx context.Context, s *shop, id string) error {
			return operation.Retry(ctx, s.pool, id)
		}, 1, []string{"before"}, operation.ErrParked},
		{"it has happened, and is not wanted any more", func(ctx context.Context, s *shop, id string) error {
			return errors.Join(operation.Resolve(ctx, s.pool, id, operation.Happened("by a person")), operation.Cancel(ctx, s.pool, id))
		}, 1, []string{"before", "undo call", "undo before"}, operation.ErrCancelled},
		{"it has not happened, and is not wanted any more", func(ctx context.Context, s *shop, id string) error {
			return errors.Join(operation.Resolve(ctx, s.pool, id, operation.NotHappened), operation.Cancel(ctx, s.pool, id))
		}, 1, []string{"before", "undo before"}, operation.ErrCancelled},
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
			if err != nil || status.State != "parked" || status.Step != "call" || status.Reason == "" || status.Name != "unsure" {
				t.Errorf("%+v, %v", status, err)
			}
			fail = nil
			if err := test.do(t.Context(), s, id); err != nil {
				t.Fatal(err)
			}
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, test.err) {
				t.Errorf("got %v, want %v", err, test.err)
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

func TestCancelEndsAnOperationThatRunsAndSettlesItsCallFirst(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), s, idem.WithWait(limit))
	await(t, "the call", b.begun)
	id := s.text(`select id::text from idem.operations`)
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	b.release <- nil // the call ends, and its value is kept, although its commit is refused
	var parked *operation.ParkedError
	if a := await(t, "the answer", answers); !errors.As(a.err, &parked) || !strings.Contains(parked.Reason, "no undo takes back") || parked.Step != "call" {
		t.Errorf("the caller was told %v", a.err)
	}
	if n, asked := s.bank.keys(); n != 1 || asked != 1 {
		t.Errorf("the bank saw %d keys in %d requests", n, asked)
	}
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened(1)); !errors.Is(err, operation.ErrNotParked) {
		t.Errorf("Resolve of a call that is on record: %v", err)
	}
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil { // the call stays as it is
		t.Fatal(err)
	}
	if a := await(t, "the answer", b.call(t.Context(), s)); !errors.Is(a.err, operation.ErrCancelled) {
		t.Errorf("the next caller was told %v", a.err)
	}
	if did := fmt.Sprint(s.did()); did != "[before]" { // it has no undo
		t.Errorf("%s is committed", did)
	}
	if entry, err := idem.Lookup(t.Context(), s.pool, scope, "k"); err != nil || entry.State != idem.StateUnused {
		t.Errorf("the key is %+v, %v", entry, err)
	}
}

func TestOperatorIsToldWhatCannotBe(t *testing.T) {
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

// The call has ended, and the step that has parked it is another: there is no key to ask for.
func TestStatusNamesNoCallWhereTheStepIsNone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		if err := outsideStep(op, "call"); err != nil {
			return err
		}
		_ = operation.UndoTx(op, "bad", func(pgx.Tx) error { return errors.New("it cannot be taken back") })
		return operation.Final(errors.New("no"))
	})
	_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
	parked := (*operation.ParkedError)(nil)
	if !errors.As(err, &parked) {
		t.Fatal(err)
	}
	if status, err := operation.Show(t.Context(), s.pool, parked.OperationID); err != nil || status.Step != "bad" || status.Kind != "" {
		t.Errorf("%+v, %v", status, err)
	}
}

// What a person has found out is about what that person has looked at. Meanwhile another person may have let the operation go on,
// which has come to the same call again: it was made a second time, and what is known of the first says nothing of that one.
func TestFindingIsRefusedOnceTheOperationHasGoneOn(t *testing.T) {
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
	id := s.text(`select id::text from idem.operations`)
	first, err := operation.Show(t.Context(), s.pool, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := operation.Resolve(t.Context(), s.pool, id, operation.NotHappened.As(first)); err != nil {
		t.Fatal(err)
	}
	run()
	for _, finding := range []operation.Finding{operation.NotHappened, operation.Happened("by a person")} {
		if err := operation.Resolve(t.Context(), s.pool, id, finding.As(first)); !errors.Is(err, operation.ErrNotParked) {
			t.Errorf("a finding that is stale: %v", err)
		}
	}
	second, err := operation.Show(t.Context(), s.pool, id)
	if err != nil || second.State != "parked" || calls != 2 {
		t.Fatalf("%+v, %v, %d calls", second, err, calls)
	}
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened("by a person").As(second)); err != nil {
		t.Error(err)
	}
}

func TestStatusShowsWhoseOperationItIsAndItsSteps(t *testing.T) {
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
		steps = append(steps, step.Kind+" "+step.Name+" "+step.Outcome)
	}
	if diff := cmp.Diff([]string{"tx before done", "undo tx undo before registered", "call call begun"}, steps); diff != "" || status.Scope != scope {
		t.Errorf("scope %q; steps (-want +got):\n%s", status.Scope, diff)
	}
}

// Who cancels an operation does not want its work done: a call that was working on it meanwhile does not begin it anew.
func TestCallWhoseOperationWasCancelledMeanwhileDoesNotBeginAnother(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	slow, quick := newBlocked(s, operation.Keyed(time.Hour)), newBlocked(s, operation.Keyed(time.Hour))
	answers := slow.call(t.Context(), s, idem.WithWait(limit))
	await(t, "the call", slow.begun)
	id := s.text(`select id::text from idem.operations`)
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set owner = null, epoch = epoch + 1`); err != nil { // as if it were dead
		t.Fatal(err)
	}
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	quick.release <- nil
	shopOn(t, s.dsn).work(t, quick)
	eventually(t, "the operation to be parked", func() bool { return s.count(`select count(*) from idem.operations where state = 'parked'`) == 1 })
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the operation to be undone", func() bool { return s.count(`select count(*) from idem.operations where state = 'undone'`) == 1 })
	slow.release <- nil // its commit is refused
	if a := await(t, "the answer", answers); !errors.Is(a.err, operation.ErrCancelled) {
		t.Errorf("%+v", a)
	}
	if n, _ := s.bank.keys(); n != 1 || s.count(`select count(*) from idem.operations`) != 1 {
		t.Errorf("the bank saw %d keys", n)
	}
}

func TestPersonCanTellTheKeyThatTheOtherSideWasAskedWith(t *testing.T) {
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
