package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// While an operation is parked because a signal does not decode, another signal of that name replaces it. A received signal stays.
func TestSignal_UnreadableIsReplacedByTheNext(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"sent while it is awaited": false, "sent before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("amount", func(op *operation.Op, _ string) (idem.Response, error) {
				if err := operation.Sleep(op, "amount", 20*time.Hour); err != nil {
					return idem.Response{}, err
				}
				amount, err := operation.Await[int](op, "amount", 20*time.Hour)
				if err != nil {
					return idem.Response{}, err
				}
				return idem.Response{Status: 200, Body: fmt.Append(nil, amount)}, operation.Sleep(op, "then", 20*time.Hour)
			})
			id := s.waits(t, d, "k")
			send := func(value any) {
				t.Helper()
				if err := operation.Signal(t.Context(), s.pool, id, "amount", value); err != nil {
					t.Fatal(err)
				}
			}
			parks := func() {
				t.Helper()
				if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, operation.ErrParked) {
					t.Fatal(err)
				}
			}
			retry := func() {
				t.Helper()
				if err := operation.Retry(t.Context(), s.pool, id); err != nil {
					t.Fatal(err)
				}
			}
			if !early {
				s.elapse()
				s.waits(t, d, "k")
			}
			send("seven")
			send(5) // the first of a name counts
			if early {
				s.elapse()
			}
			parks()
			send("eight")
			retry()
			parks()
			send(7)
			retry()
			send(9) // it is on its way
			s.waits(t, d, "k")
			send(10) // it has received the one before
			s.elapse()
			if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); err != nil || string(res.Body) != "7" {
				t.Errorf("%s, %v", res.Body, err)
			}
		})
	}
}

// At a step that has the name of the signal, too.
func TestSignal_NotReplacedWhereParkedOtherwise(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	charge := func(op *operation.Op) error {
		_, err := operation.Call(op, "paid", operation.Once, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
		return err
	}
	d := operation.Define("paid", func(op *operation.Op, _ string) (idem.Response, error) {
		if err := charge(op); err != nil {
			return idem.Response{}, err
		}
		value, err := operation.Await[string](op, "paid", 20*time.Hour)
		return idem.Response{Status: 200, Body: []byte(value)}, err
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	id := s.text(`select id::text from idem.operations`)
	for _, value := range []string{"the first", "the second"} {
		if err := operation.Signal(t.Context(), s.pool, id, "paid", value); err != nil {
			t.Fatal(err)
		}
	}
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened("")); err != nil {
		t.Fatal(err)
	}
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); err != nil || string(res.Body) != "the first" {
		t.Errorf("%s, %v", res.Body, err)
	}
}
