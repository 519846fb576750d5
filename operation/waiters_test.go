package operation_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// rate is an error that only its type tells apart.
type rate struct{ Percent int }

func (r *rate) Error() string { return "the rate has changed" }

var errNotApproved = errors.New("a secret name has not approved")

// ends are errors in which an operation ends, and what has to be found in each.
var ends = map[string]struct {
	opts []operation.Option
	end  error
	is   func(error) bool
}{
	"one that the definition names": {
		[]operation.Option{operation.WithErrors(errNotApproved)}, errNotApproved, func(err error) bool { return errors.Is(err, errNotApproved) },
	},
	"a type": {nil, &rate{12}, func(err error) bool {
		var found *rate
		return errors.As(err, &found) && found.Percent == 12
	}},
}

// approval charges, blocks in a Call until release is closed, and ends in an error.
func (s *shop) approval(end error, inside chan<- struct{}, release <-chan struct{}, opts ...operation.Option) *operation.Definition[int] {
	return operation.Define("approval", func(op *operation.Op, _ int) (idem.Response, error) {
		if _, err := operation.Call(op, "charge", operation.Once, s.bank.charge); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "ask", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			inside <- struct{}{}
			<-release
			return 0, nil
		})
		if err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, operation.Final(end)
	}, opts...)
}

// Each of them was given the key of one request. To begin the work anew would be to charge as often as there are callers, and ends.
func TestWaiters_GetTheErrorAndBeginNothing(t *testing.T) {
	t.Parallel()
	for name, test := range ends {
		for _, sealed := range [][]idem.Option{nil, {sealerOf(7)}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				there := s.aside()
				inside, release := make(chan struct{}, 8), make(chan struct{})
				d := s.approval(test.end, inside, release, test.opts...)
				const each = 3
				answers, waiting := make(chan error, 2*each), make(waits, 2*each)
				call := func(from *shop) {
					_, err := d.Do(t.Context(), from.pool, scope, "k", hashA, 0, append(sealed, idem.WithWait(limit), idem.WithObserver(waiting))...)
					answers <- err
				}
				go call(s)
				await(t, "the first caller to be inside", inside)
				for range each - 1 {
					go call(s)
					await(t, "a caller to wait", (chan struct{})(waiting))
				}
				for range each {
					go call(there)
					await(t, "a caller of another process to wait", (chan struct{})(waiting))
				}
				close(release)
				for range 2 * each {
					if err := await(t, "an answer", answers); !operation.IsFinal(err) || !test.is(err) || err.Error() != test.end.Error() {
						t.Errorf("a caller got %#v", err)
					}
				}
				if n, _ := s.bank.keys(); n != 1 {
					t.Errorf("the bank was charged under %d keys", n)
				}
				if n := s.count(`select count(*) from idem.steps where position('secret'::bytea in value) > 0`); n > 0 && sealed != nil {
					t.Error("the error is readable")
				}
				if _, err := d.Do(t.Context(), there.pool, scope, "k", hashA, 0, sealed...); !operation.IsFinal(err) {
					t.Error(err)
				}
				if n, _ := s.bank.keys(); n != 2 {
					t.Errorf("behind its end the key is not free: the bank was charged under %d keys", n)
				}
			})
		}
	}
}

// The caller has begun the operation itself, and a Worker ends it.
func TestWaiters_GetTheErrorOfAWorker(t *testing.T) {
	t.Parallel()
	rejecting := operation.Define("shipping", func(*operation.Op, int) (idem.Response, error) {
		return idem.Response{}, idem.Reject(declined)
	})
	for name, test := range map[string]struct {
		end func(op *operation.Op) (idem.Response, error)
		is  func(error) bool
	}{
		"the error of its child": {func(op *operation.Op) (idem.Response, error) {
			return operation.Child(op, "ship", rejecting, 0)
		}, func(err error) bool {
			var child *operation.ChildError
			return errors.As(err, &child) && cmp.Equal(child.Rejected.Body, declined.Body)
		}},
		"what a person has said": {func(op *operation.Op) (idem.Response, error) {
			if yes, err := operation.Await[bool](op, "approve", time.Hour); yes || err != nil {
				return idem.Response{}, err
			}
			return idem.Response{}, operation.Final(errNotApproved)
		}, func(err error) bool { return err.Error() == errNotApproved.Error() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var first atomic.Value // the operation
			d := operation.Define("ordering", func(op *operation.Op, _ int) (idem.Response, error) {
				if !first.CompareAndSwap(nil, op.ID()) && first.Load() != op.ID() {
					return idem.Response{}, operation.Final(errors.New("it was begun anew"))
				}
				if _, err := operation.Call(op, "charge", operation.Once, s.bank.charge); err != nil {
					return idem.Response{}, err
				}
				return test.end(op)
			})
			s.work(t, d, rejecting)
			waiting, answers := make(waits, 1), make(chan error, 1)
			go func() {
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit), idem.WithObserver(waiting))
				answers <- err
			}()
			await(t, "the caller to wait", (chan struct{})(waiting))
			if err := operation.Signal(t.Context(), s.pool, s.text(`select id::text from idem.operations where name = 'ordering'`), "approve", false); err != nil {
				t.Fatal(err)
			}
			if err := await(t, "an answer", answers); !operation.IsFinal(err) || !test.is(err) {
				t.Errorf("the caller got %v", err)
			}
			if n, _ := s.bank.keys(); n != 1 {
				t.Errorf("the bank was charged under %d keys", n)
			}
		})
	}
}

// The error of the inner operation is not that of callers who wait for the outer one, which has committed nothing.
func TestWaiters_NotTheErrorOfAnotherOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	inner := operation.Define("inner", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Once, s.bank.charge)
		return idem.Response{}, errors.Join(err, operation.Final(errNotApproved))
	})
	_, end := inner.Do(t.Context(), s.pool, scope, "inner", hashA, 0)
	runs, release := make(chan struct{}, 8), make(chan struct{})
	d := operation.Define("outer", func(*operation.Op, int) (idem.Response, error) {
		select {
		case <-release:
			return created, nil
		default:
		}
		runs <- struct{}{}
		<-release
		return idem.Response{}, fmt.Errorf("the inner one: %w", end)
	})
	first, second, waiting := make(chan error, 1), make(chan error, 1), make(waits, 1)
	call := func(answer chan error) {
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit), idem.WithObserver(waiting))
		answer <- err
	}
	go call(first)
	await(t, "the first caller to be inside", runs)
	go call(second)
	await(t, "the second caller to wait", (chan struct{})(waiting))
	close(release)
	if err := await(t, "the first caller", first); err == nil {
		t.Error("the first caller got no error")
	}
	if err := await(t, "the second caller", second); err != nil {
		t.Errorf("the second caller got %v", err)
	}
}
