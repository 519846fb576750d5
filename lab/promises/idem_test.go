package promises_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

func TestFirstCallExecutesAndRetryReplaysTheSameBytes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	first, err := idemDo(ctx, l.pool, scope, "k1", hashA, l.charge("k1"))
	if err != nil {
		t.Fatal(err)
	}
	if first.Replayed || first.Rejected || first.Status != 201 {
		t.Errorf("first = %+v", first)
	}
	second, err := idemDo(ctx, l.pool, scope, "k1", hashA, l.charge("k1"))
	if err != nil {
		t.Fatal(err)
	}
	want := first
	want.Replayed = true
	if diff := cmp.Diff(want, second); diff != "" {
		t.Errorf("replay differs (-first +replay):\n%s", diff)
	}
	if l.runs.Load() != 1 {
		t.Errorf("fn ran %d times", l.runs.Load())
	}
	l.wantOnce("k1")
}

func TestErrorOfFnRollsBackAndFreesTheKeyAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	_, err := idemDo(ctx, l.pool, scope, "k", hashA, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := l.charge("k")(tx); err != nil {
			t.Error(err)
		}
		return idem.Response{}, errBusiness
	})
	if err != errBusiness {
		t.Errorf("err = %v, want fn's own, untouched", err)
	}
	l.wantNone("k")
	if _, err := idemDo(ctx, l.pool, scope, "k", hashB, l.charge("k"), idem.WithWait(0)); err != nil {
		t.Errorf("the key is not free: %v", err)
	}
	l.wantOnce("k")
}

func TestAnotherHashIsAMismatchAndRevealsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	first, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := idemDo(ctx, l.pool, scope, "k", hashB, l.charge("k"))
	var mismatch *idem.MismatchError
	if !errors.As(err, &mismatch) || !errors.Is(err, idem.ErrMismatch) {
		t.Fatalf("err = %v", err)
	}
	if !mismatch.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("CreatedAt = %v, want %v", mismatch.CreatedAt, first.CreatedAt)
	}
	if diff := cmp.Diff(idem.Result{}, got); diff != "" {
		t.Errorf("the result is not empty:\n%s", diff)
	}
	if idem.Retryable(err) {
		t.Error("a mismatch is retryable")
	}
	l.wantOnce("k")
}

func TestRejectUndoesTheWritesAndIsFinal(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := newLedger(t)
	declined := idem.Response{Status: 402, Body: []byte(`{"error":"declined"}`)}
	first, err := idemDo(ctx, l.pool, scope, "k", hashA, oneRun(t, func(tx pgx.Tx) (idem.Response, error) {
		if _, err := l.charge("k")(tx); err != nil {
			t.Error(err)
		}
		return idem.Response{}, idem.Reject(declined)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !first.Rejected || first.Replayed {
		t.Errorf("first = %+v", first)
	}
	if diff := cmp.Diff(declined, first.Response); diff != "" {
		t.Error(diff)
	}
	second, err := idemDo(ctx, l.pool, scope, "k", hashA, l.charge("k"))
	if err != nil {
		t.Fatal(err)
	}
	want := first
	want.Replayed = true
	if diff := cmp.Diff(want, second); diff != "" {
		t.Error(diff)
	}
	if l.entries("k") != 0 || l.records("k") != 1 {
		t.Errorf("%d effects, %d records", l.entries("k"), l.records("k"))
	}
}
