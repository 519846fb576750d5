package operation_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// safely recovers from what a step does, as a helper of the function's author or of a framework may. A goroutine that ends is waited for.
func safely(step func()) (recovered any) {
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		step()
	}()
	return <-done
}

// What the function may make of a panic that it has recovered from: nothing that ends the operation.
func TestRecoveredPanic_EndsTheRun(t *testing.T) {
	t.Parallel()
	for escapeName, escape := range map[string]func(){"a panic": func() { panic("behind the answer") }, "Goexit": runtime.Goexit} {
		for next, goOn := range map[string]func(op *operation.Op) (idem.Response, error){
			"completes": func(*operation.Op) (idem.Response, error) { return created, nil },
			"takes another card": func(op *operation.Op) (idem.Response, error) {
				return created, outsideStep(op, "another card")
			},
			"makes the step again": func(op *operation.Op) (idem.Response, error) { return created, outsideStep(op, "charge") },
			"rejects": func(op *operation.Op) (idem.Response, error) {
				return idem.Response{}, idem.Reject(created)
			},
			"fails for good": func(*operation.Op) (idem.Response, error) {
				return idem.Response{}, operation.Final(errors.New("no"))
			},
		} {
			t.Run(escapeName+", "+next, func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				keys := map[string]int{}
				d := operation.Define("recovers", func(op *operation.Op, _ int) (resp idem.Response, err error) {
					safely(func() {
						_, _ = operation.Call(op, "charge", operation.Once, func(_ context.Context, key string) (int, error) {
							keys[key]++
							escape()
							return 1, nil
						})
					})
					return goOn(op)
				})
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
				if err == nil || !strings.Contains(err.Error(), `"charge" has panicked`) {
					t.Errorf("got %v", err)
				}
				_, err = d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)) // when its pause is over
				if parked := (*operation.ParkedError)(nil); !errors.As(err, &parked) || parked.Step != "charge" {
					t.Errorf("a call that is Once and in doubt: %v", err)
				}
				if len(keys) != 1 {
					t.Errorf("charged under the keys %v", keys)
				}
			})
		}
	}
}

func TestRecoveredPanic_OfATxLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, outside := range []bool{false, true} {
		s := newShop(t)
		angry := true
		d := operation.Define("recovers", func(op *operation.Op, _ int) (idem.Response, error) {
			if outside {
				if err := outsideStep(op, "call"); err != nil {
					return idem.Response{}, err
				}
			}
			if err := localStep(op, "before"); err != nil {
				return idem.Response{}, err
			}
			if r := safely(func() {
				_, _ = operation.Tx(op, "half", func(tx pgx.Tx) (string, error) {
					value, err := write("half")(tx)
					if angry {
						panic("half way")
					}
					return value, err
				})
			}); angry && r == nil {
				t.Error("the function did not see the panic")
			}
			return created, nil
		})
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err == nil {
			t.Error("it has completed")
		}
		if did := s.did(); len(did) != 0 {
			t.Errorf("%v is committed", did)
		}
		angry = false
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil {
			t.Error(err)
		}
		if did := fmt.Sprint(s.did()); did != "[before half]" {
			t.Errorf("%s is committed", did)
		}
	}
}

func TestRecoveredPanic_OfParallelCallsEndsTheRun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	angry := true
	d := operation.Define("recovers", func(op *operation.Op, _ int) (idem.Response, error) {
		safely(func() {
			calls := operation.Parallel(op)
			operation.Go(calls, "air", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
				if angry {
					panic("behind the answer")
				}
				return 1, nil
			})
			_ = calls.Wait()
		})
		return idem.Response{}, idem.Reject(created)
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err == nil || !strings.Contains(err.Error(), `"air" has panicked`) {
		t.Errorf("got %v", err)
	}
	if got := s.outcomes(); got != "air begun" {
		t.Error(got)
	}
	angry = false
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil {
		t.Error(err)
	}
	if got := s.outcomes(); got != "air done" {
		t.Error(got)
	}
}
