package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// The outermost of Final, NotSent and Unknown counts. Of joined errors the one that says least counts.
func TestFinal_WrappedAgain(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"unknown of final":         {operation.Unknown(operation.Final(refused)), "parked"},
		"unknown of a remark":      {operation.Unknown(fmt.Errorf("gateway: %w", operation.Final(refused))), "parked"},
		"unknown of not sent":      {operation.Unknown(operation.NotSent(refused)), "parked"},
		"joined, unknown last":     {errors.Join(operation.Final(refused), operation.Unknown(refused)), "parked"},
		"joined, not sent first":   {errors.Join(operation.NotSent(refused), operation.Unknown(refused)), "parked"},
		"final of unknown":         {operation.Final(operation.Unknown(refused)), "failed"},
		"final of joined unknowns": {operation.Final(errors.Join(operation.Unknown(refused), refused)), "failed"},
		"final and a remark":       {fmt.Errorf("%w: %w", errors.New("while charging"), operation.Final(refused)), "failed"},
		"joined, final twice":      {errors.Join(operation.Final(refused), nil, operation.Final(errDeclined)), "failed"},
		"joined, no answer first":  {errors.Join(errTimeout, operation.Final(refused)), "parked"},
		"joined, no answer last":   {errors.Join(operation.NotSent(refused), errTimeout), "parked"},
		"a remark on joined":       {fmt.Errorf("both providers: %w", errors.Join(operation.NotSent(refused), errTimeout)), "parked"},
		"final of not sent":        {operation.Final(operation.NotSent(refused)), "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("layers", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (int, error) { return 0, test.err })
				if operation.IsFinal(err) {
					return idem.Response{}, idem.Reject(declined)
				}
				return created, err
			}, operation.WithErrors(refused))
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			if state := s.text(`select state from idem.operations`); state != test.want {
				t.Errorf("the operation is %s, want %s: %v", state, test.want, err)
			}
		})
	}
}

// An Unknown of find is no refusal: find is called again.
func TestAsked_UnknownIsNoRefusal(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asked := 0
	find := quickly(operation.Asked(func(_ context.Context, key string) (string, bool, error) {
		if asked++; asked == 1 {
			return "", false, operation.Unknown(operation.Final(errDeclined))
		}
		return "charged " + key, true, nil
	}))
	d := operation.Define("asked", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", find, func(ctx context.Context, key string) (string, error) {
			_, _ = s.bank.charge(ctx, key)
			return "", errors.New("no answer")
		})
		return created, err
	})
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || res.Status != 201 {
		t.Errorf("%+v, %v", res, err)
	}
}

// The function returns an error of another operation. It does not count as the end of this one.
func TestDo_ErrorOfAnotherOperation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]error{
		"canceled": operation.ErrCanceled, "parked": &operation.ParkedError{OperationID: "another"},
		"canceled, for good": operation.Final(operation.ErrCanceled), "parked, for good": operation.Final(&operation.ParkedError{OperationID: "another"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("outer", func(op *operation.Op, _ int) (idem.Response, error) {
				if err := outsideStep(op, "charge"); err != nil {
					return idem.Response{}, err
				}
				return idem.Response{}, fmt.Errorf("the inner one: %w", test)
			})
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			if err == nil || errors.Is(err, operation.ErrCanceled) || errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), test.Error()) {
				t.Errorf("an operation that is %s is said to be: %v", s.text(`select state from idem.operations`), err)
			}
		})
	}
}
