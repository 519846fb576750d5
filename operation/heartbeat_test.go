package operation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// The first attempt blocks, and the cause of its context is ErrNoBeat.
func TestHeartbeat_MissedLeavesTheCallInDoubt(t *testing.T) {
	t.Parallel()
	silent := func(t *testing.T, attempts *int) func(context.Context, string) (string, error) {
		return func(ctx context.Context, _ string) (string, error) {
			if *attempts++; *attempts > 1 {
				return "done", nil
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, operation.ErrNoBeat) {
				t.Errorf("the cause is %v", cause)
			}
			return "", operation.Final(ctx.Err()) // whatever its error says
		}
	}
	const silence = 10 * time.Millisecond
	for name, test := range map[string]struct {
		policy operation.Policy
		parks  bool
	}{
		"Keyed": {operation.Keyed(time.Hour), false},
		"Asked": {operation.Asked(func(context.Context, string) (string, bool, error) { return "", false, nil }), false},
		"Once":  {operation.Once, true},
	} {
		for kind, step := range map[string]func(op *operation.Op, fn func(context.Context, string) (string, error)) error{
			"Call": func(op *operation.Op, fn func(context.Context, string) (string, error)) error {
				_, err := operation.Call(op, "call", test.policy.WithHeartbeat(silence), fn)
				return err
			},
			"Go": func(op *operation.Op, fn func(context.Context, string) (string, error)) error {
				calls := operation.Parallel(op)
				operation.Go(calls, "call", test.policy.WithHeartbeat(silence), fn)
				return calls.Wait()
			},
		} {
			t.Run(name+" by "+kind, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				attempts := 0
				d := define(func(op *operation.Op) error { return step(op, silent(t, &attempts)) })
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
				if test.parks != errors.Is(err, operation.ErrParked) || !test.parks && (err != nil || attempts != 2) {
					t.Errorf("%v after %d attempts", err, attempts)
				}
			})
		}
	}
}

func TestHeartbeat_MissedIsTheLastError(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var seen error
	d := define(func(op *operation.Op) error {
		find := operation.Asked(func(context.Context, string) (int, bool, error) { return 0, false, nil }).WithHeartbeat(time.Millisecond).WithMaxAttempts(1)
		_, seen = operation.Call(op, "call", find, func(ctx context.Context, _ string) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		return seen
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(seen, operation.ErrNoBeat) || !errors.Is(err, operation.ErrNoBeat) || !strings.Contains(err.Error(), "no beat") {
		t.Errorf("the function saw %v, and the caller %v", seen, err)
	}
}

func TestHeartbeat_OfAnUndo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	attempts := 0
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
			operation.UndoCall(operation.Keyed(time.Hour).WithHeartbeat(time.Millisecond), func(ctx context.Context, _, _ string) error {
				if attempts++; attempts > 1 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}))
		return errors.Join(err, idem.Reject(declined))
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || attempts != 2 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

func TestHeartbeat_IsPositiveAndShorterThanTheWindow(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{0, -1, time.Hour} {
		s := newShop(t)
		made := false
		d := define(func(op *operation.Op) error {
			_, err := operation.Call(op, "call", operation.Keyed(time.Hour).WithHeartbeat(d), func(context.Context, string) (int, error) { made = true; return 1, nil })
			return err
		})
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err == nil || made {
			t.Errorf("%v, made: %v", err, made)
		}
	}
}
