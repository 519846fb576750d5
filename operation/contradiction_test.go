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

// A layer of the program takes an error for one that is final, or not sent, and the layer above knows better. Who has the last word is
// who wraps the error last; where two errors are joined, the one that knows less.
func TestLastWordOnAnAttemptIsThatOfTheOutermostError(t *testing.T) {
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

// The same of a question the outcome of a call.
func TestFindThatDoesNotKnowIsNotTakenForARefusal(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asked := 0
	find := operation.Asked(func(_ context.Context, key string) (string, bool, error) {
		if asked++; asked == 1 {
			return "", false, operation.Unknown(operation.Final(errDeclined))
		}
		return "charged " + key, true, nil
	})
	d := operation.Define("asked", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", find, func(ctx context.Context, key string) (string, error) {
			_, _ = s.bank.charge(ctx, key)
			return "", errors.New("no answer")
		}, operation.Pauses(time.Millisecond, time.Millisecond))
		return created, err
	})
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || res.Status != 201 {
		t.Errorf("%+v, %v", res, err)
	}
}

// charges is a list of cards, by what the bank says to each, and of what is refunded.
type charges struct {
	*shop
	op   *operation.Op
	done []string
}

func (c *charges) card(name string, accepted bool) error {
	_, err := operation.Call(c.op, name, operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
		if !accepted {
			return 0, operation.Final(errDeclined)
		}
		return 1, nil
	})
	if errors.Is(err, errDeclined) {
		return nil
	}
	return err
}

func (c *charges) refund(name string) error {
	return operation.Undo(c.op, "refund "+name, operation.Keyed(time.Hour), func(context.Context, string) error {
		c.done = append(c.done, name)
		return nil
	})
}

func TestUndoOfACallThatWasDeclinedIsNotRunWhateverFollows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		steps func(c *charges) error
		want  []string
	}{
		"a call that needs none": {func(c *charges) error {
			return errors.Join(c.card("A", false), c.refund("A"), c.card("mail", true))
		}, nil},
		"behind steps with an undo of their own": {func(c *charges) error {
			return errors.Join(c.card("deposit", true), c.refund("deposit"), c.card("A", false), c.refund("A"), c.card("mail", true))
		}, []string{"deposit"}},
		"behind a group with two undos, and in front of another charge": {func(c *charges) error {
			_, err := operation.Tx(c.op, "reserve", write("reserve"))
			return errors.Join(err, c.card("deposit", true), operation.UndoTx(c.op, "release", func(pgx.Tx) error { return nil }), c.refund("deposit"),
				c.card("A", false), c.refund("A"), c.card("B", true), c.refund("B"))
		}, []string{"B", "deposit"}},
		"nor the one behind it that is of another kind": {func(c *charges) error {
			return errors.Join(c.card("A", false), c.refund("A"), operation.UndoTx(c.op, "release", func(pgx.Tx) error { return errors.New("it is run") }),
				c.card("mail", true))
		}, nil},
		"but a second one of its kind, which is for what follows": {func(c *charges) error {
			return errors.Join(c.card("A", false), c.refund("A"), c.refund("ahead"), c.card("B", true))
		}, []string{"ahead"}},
		"a second one in front of calls that are made together": {func(c *charges) error {
			err := errors.Join(c.card("A", false), c.refund("A"), c.refund("ahead"))
			calls := operation.Parallel(c.op)
			for _, name := range []string{"B", "C"} {
				operation.Go(calls, name, operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
					if name == "C" {
						return 0, operation.Final(errDeclined)
					}
					return 1, nil
				})
			}
			if failed := calls.Wait(); !errors.Is(failed, errDeclined) {
				return errors.Join(err, failed)
			}
			return err
		}, []string{"ahead"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &charges{shop: newShop(t)}
			d := operation.Define("cards", func(op *operation.Op, _ int) (idem.Response, error) {
				c.op = op
				if err := test.steps(c); err != nil {
					return idem.Response{}, err
				}
				return idem.Response{}, idem.Reject(declined)
			})
			if res, err := d.Do(t.Context(), c.pool, scope, "k", hashA, 0); err != nil || !res.Rejected {
				t.Fatalf("%+v, %v", res, err)
			}
			if diff := cmp.Diff(test.want, c.done); diff != "" {
				t.Errorf("refunded (-want +got):\n%s", diff)
			}
			for _, name := range strings.Fields(c.text(`select coalesce(string_agg(replace(name, 'refund ', ''), ' '), '') from idem.steps where kind = 'undo' and outcome = 'undone'`)) {
				if !slices.Contains(test.want, name) {
					t.Errorf("it is on record that the refund of %s was run", name)
				}
			}
		})
	}
}

// Steps have two undos, one in Postgres and one outside. Neither is for the next call.
func TestCancelInACallBehindAGroupWithTwoUndosDoesNotTakeItForCovered(t *testing.T) {
	t.Parallel()
	release := func(c *charges) error { return operation.UndoTx(c.op, "release", func(pgx.Tx) error { return nil }) }
	for name, group := range map[string]func(c *charges) error{
		"a Tx and a call": func(c *charges) error {
			_, err := operation.Tx(c.op, "reserve", write("reserve"))
			return errors.Join(err, c.card("deposit", true), release(c), c.refund("deposit"))
		},
		"a call, and the undo in Postgres last": func(c *charges) error {
			return errors.Join(c.card("deposit", true), c.refund("deposit"), release(c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &charges{shop: newShop(t)}
			d := operation.Define("cards", func(op *operation.Op, _ int) (idem.Response, error) {
				c.op = op
				if err := group(c); err != nil {
					return idem.Response{}, err
				}
				_, err := operation.Call(op, "rest", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (int, error) {
					return 1, operation.Cancel(ctx, c.pool, op.ID())
				})
				return created, err
			})
			_, err := d.Do(t.Context(), c.pool, scope, "k", hashA, 0)
			if !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), `call "rest" has happened`) {
				t.Errorf("got %v, want that nothing takes the rest back", err)
			}
		})
	}
}

// Both are registered before what they take back, in either order.
func TestCancelRunsTwoUndosThatAreRegisteredBeforeTheirSteps(t *testing.T) {
	t.Parallel()
	for _, postgresLast := range []bool{false, true} {
		t.Run(fmt.Sprint(postgresLast), func(t *testing.T) {
			t.Parallel()
			c := &charges{shop: newShop(t)}
			d := operation.Define("cards", func(op *operation.Op, _ int) (idem.Response, error) {
				c.op = op
				undos := []func() error{
					func() error { return operation.UndoTx(op, "release", func(pgx.Tx) error { return nil }) },
					func() error { return c.refund("deposit") },
				}
				if postgresLast {
					undos[0], undos[1] = undos[1], undos[0]
				}
				if err := errors.Join(undos[0](), undos[1]()); err != nil {
					return idem.Response{}, err
				}
				_, err := operation.Call(op, "deposit", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (int, error) {
					return 1, operation.Cancel(ctx, c.pool, op.ID())
				})
				return created, err
			})
			if _, err := d.Do(t.Context(), c.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrCancelled) || len(c.done) != 1 {
				t.Errorf("got %v, and %v refunded", err, c.done)
			}
		})
	}
}

// An error of the function, as of another operation that it has started, says nothing about its own.
func TestErrorOfAnotherOperationIsNotTakenForTheEndOfThisOne(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]error{
		"cancelled": operation.ErrCancelled, "parked": &operation.ParkedError{OperationID: "another"},
		"cancelled, for good": operation.Final(operation.ErrCancelled), "parked, for good": operation.Final(&operation.ParkedError{OperationID: "another"}),
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
			if err == nil || errors.Is(err, operation.ErrCancelled) || errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), test.Error()) {
				t.Errorf("an operation that is %s is said to be: %v", s.text(`select state from idem.operations`), err)
			}
		})
	}
}
