package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// brittle is an error whose methods panic.
type brittle struct{}

func (brittle) Error() string { panic("no text") }

// speechless are errors that cannot be asked.
func speechless() map[string]error {
	var none *pgconn.PgError
	return map[string]error{
		"nil pointer": none, "wrapped nil pointer": fmt.Errorf("charge: %w", none), "joined nil pointer": errors.Join(errDeclined, none), "panics": brittle{},
	}
}

// An answer is an answer, also if its error cannot say a word.
func TestError_WhoseTextPanics(t *testing.T) {
	t.Parallel()
	for name, mute := range speechless() {
		t.Run("refused by a call, "+name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var got error
			d := define(func(op *operation.Op) error {
				_, got = operation.Call(op, "charge", operation.Once, func(context.Context, string) (int, error) { return 0, operation.Final(mute) })
				return nil
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || !operation.IsFinal(got) {
				t.Errorf("the caller got %v, the function %v", err, got)
			}
		})
		t.Run("lost by a call, "+name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := define(func(op *operation.Op) error {
				_, err := operation.Call(op, "charge", operation.Once.WithAttemptTimeout(time.Millisecond), func(ctx context.Context, _ string) (int, error) {
					<-ctx.Done()
					return 0, operation.Final(mute)
				})
				return err
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
				t.Error(err)
			}
		})
		t.Run("of a search, "+name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			asked := 0
			find := operation.Asked(func(context.Context, string) (int, bool, error) {
				if asked++; asked == 1 {
					return 0, false, mute
				}
				return 7, true, nil
			})
			d := define(func(op *operation.Op) error {
				_, err := operation.Call(op, "charge", find, func(context.Context, string) (int, error) { return 0, errTimeout })
				return err
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil {
				t.Error(err)
			}
		})
		t.Run("of a Tx, "+name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var got error
			d := define(func(op *operation.Op) error {
				_, got = operation.Tx(op, "write", func(pgx.Tx) (int, error) { return 0, mute })
				return nil
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || got == nil {
				t.Errorf("the caller got %v, the function %v", err, got)
			}
		})
		t.Run("of the function, "+name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			fail := true
			d := define(func(op *operation.Op) error {
				if err := errors.Join(outsideStep(op, "charge"), op.Checkpoint()); err != nil || !fail {
					return err
				}
				return mute
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err == nil {
				t.Error("no error")
			}
			fail = false
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(time.Minute)); err != nil {
				t.Error(err)
			}
		})
	}
}

// quiet is an error that speaks well as a nil pointer.
type quiet struct{}

func (*quiet) Error() string { return "quiet" }

func TestError_NilPointerWithAText(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var none *quiet
	var got error
	d := define(func(op *operation.Op) error {
		_, got = operation.Tx(op, "write", func(pgx.Tx) (int, error) { return 0, none })
		return nil
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || got == nil || got.Error() != "quiet" {
		t.Errorf("the caller got %v, the function %v", err, got)
	}
}

// What the function wants recorded is not lost in the company of an error that cannot speak.
func TestReject_JoinedWithAnErrorWhoseTextPanics(t *testing.T) {
	t.Parallel()
	var none *pgconn.PgError
	for name, inTx := range map[string]bool{"of a Tx": true, "of the function": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := define(func(op *operation.Op) error {
				end := errors.Join(idem.Reject(idem.Response{Status: 402}), none)
				if !inTx {
					return end
				}
				_, err := operation.Tx(op, "write", func(pgx.Tx) (int, error) { return 0, end })
				return err
			})
			for range 2 {
				if result, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || result.Status != 402 {
					t.Errorf("%+v, %v", result, err)
				}
			}
		})
	}
}
