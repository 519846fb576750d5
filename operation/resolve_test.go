package operation_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// stuck is an operation that is parked at a call that is Once, and its id. The call has a value of a type of its own.
func stuck(t *testing.T, s *shop, name string, opts ...operation.Option) (c *stuckCall, id string) {
	t.Helper()
	c = &stuckCall{}
	c.Definition = operation.Define(name, func(op *operation.Op, _ int) (idem.Response, error) {
		if err := outsideStep(op, "before"); err != nil {
			return idem.Response{}, err
		}
		c.value, c.err = operation.Call(op, "call", operation.Once, func(context.Context, string) (inner, error) { return inner{}, errTimeout })
		return created, c.err
	}, opts...)
	if _, err := c.Do(t.Context(), s.pool, scope, name, hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	return c, s.text(`select id::text from idem.operations where name = '` + name + `'`)
}

type stuckCall struct {
	*operation.Definition[int]
	value inner
	err   error
}

// gobCodec is a codec of one's own.
type gobCodec struct{}

func (gobCodec) Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(value)
	return b.Bytes(), err
}

func (gobCodec) Decode(stored []byte, value any) error {
	return gob.NewDecoder(bytes.NewReader(stored)).Decode(value)
}

func TestResolve_RefusedKeepsNamedErrors(t *testing.T) {
	t.Parallel()
	for _, sealed := range [][]idem.Option{nil, {sealerOf(7)}} {
		s := newShop(t)
		c := &stuckCall{}
		d := operation.Define("stuck", func(op *operation.Op, _ int) (idem.Response, error) {
			_, c.err = operation.Call(op, "call", operation.Once, func(context.Context, string) (inner, error) { return inner{}, errTimeout })
			return created, c.err
		}, operation.WithErrors(&coded{}))
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, sealed...); !errors.Is(err, operation.ErrParked) {
			t.Fatal(err)
		}
		finding := operation.Refused(fmt.Errorf("%w: %w", errSentinel, &coded{"declined"}))
		if err := d.Resolve(t.Context(), s.pool, s.text(`select id::text from idem.operations`), finding, sealed...); err != nil {
			t.Fatal(err)
		}
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, sealed...)
		if !operation.IsFinal(c.err) || !errors.Is(c.err, errDeclined) || !errors.Is(err, errSentinel) {
			t.Errorf("the function got %v, and the caller %v", c.err, err)
		}
	}
}

func TestResolve_RefusedWithoutADefinition(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c, id := stuck(t, s, "stuck", operation.WithErrors(errDeclined))
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Refused(errDeclined)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), s.pool, scope, "stuck", hashA, 0); !errors.Is(err, errDeclined) || !operation.IsFinal(c.err) {
		t.Errorf("the function got %v, and the caller %v", c.err, err)
	}
}

func TestResolve_OfAnUndo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		finding operation.Finding
		undos   int
		refused bool
	}{
		"Happened":    {operation.Happened(nil), 1, false},
		"NotHappened": {operation.NotHappened, 2, false},
		"Refused":     {operation.Refused(nil), 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			undos := 0
			d := define(func(op *operation.Op) error {
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
					operation.UndoCall(operation.Once, func(context.Context, string, string) error {
						if undos++; undos == 1 {
							return errTimeout
						}
						return nil
					}))
				return errors.Join(err, idem.Reject(declined))
			})
			var parked *operation.ParkedError
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			if !errors.As(err, &parked) || parked.Reason != operation.ReasonCallInDoubt || parked.Step != "charge" {
				t.Fatal(err)
			}
			if status, err := operation.Show(t.Context(), s.pool, parked.OperationID); err != nil || status.Kind != "undo" || !slices.Equal(status.Undos, []string{"charge"}) {
				t.Errorf("%+v, %v", status, err)
			}
			err = operation.Resolve(t.Context(), s.pool, parked.OperationID, test.finding)
			if test.refused {
				if !errors.Is(err, operation.ErrNotParked) {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || !res.Rejected || undos != test.undos {
				t.Errorf("%+v, %v after %d undos", res, err, undos)
			}
		})
	}
}

// The value of a person is one of the function: it has to be stored as the function's are.
func TestResolve_OfADefinitionUsesItsCodec(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c, id := stuck(t, s, "stuck", operation.WithCodec(gobCodec{}))
	if err := c.Resolve(t.Context(), s.pool, id, operation.Happened(inner{7})); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), s.pool, scope, "stuck", hashA, 0); err != nil || c.value.N != 7 {
		t.Errorf("%+v, %v", c.value, err)
	}
}

func TestResolve_OfADefinitionRefusesOthers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	other, _ := stuck(t, s, "other")
	_, id := stuck(t, s, "stuck")
	for _, finding := range []operation.Finding{operation.NotHappened, operation.Happened(inner{7}), operation.Refused(errDeclined)} {
		if err := other.Resolve(t.Context(), s.pool, id, finding); !errors.Is(err, operation.ErrUnknownOperation) {
			t.Error(err)
		}
	}
	if n := s.count(`select count(*) from idem.operations where state = 'parked'`); n != 2 {
		t.Errorf("%d operations are parked, want 2", n)
	}
}

// A value that does not decode parks the operation again, and Resolve takes another one. Other steps cannot be resolved.
func TestResolve_BadValueIsGivenAgain(t *testing.T) {
	t.Parallel()
	for name, sealed := range map[string][]idem.Option{"plain": nil, "sealed": {sealerOf(7)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var got inner
			d := operation.Define("stuck", func(op *operation.Op, _ int) (idem.Response, error) {
				if err := outsideStep(op, "before"); err != nil {
					return idem.Response{}, err
				}
				var err error
				got, err = operation.Call(op, "call", operation.Once, func(context.Context, string) (inner, error) { return inner{}, errTimeout })
				return created, err
			})
			do := func() error {
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, sealed...)
				return err
			}
			if err := do(); !errors.Is(err, operation.ErrParked) {
				t.Fatal(err)
			}
			id := s.text(`select id::text from idem.operations`)
			for range 2 {
				if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened("seven"), sealed...); err != nil {
					t.Fatal(err)
				}
				var parked *operation.ParkedError
				if err := do(); !errors.As(err, &parked) || parked.Step != "call" || parked.Reason != operation.ReasonValueUnreadable || !strings.Contains(parked.ReasonText, "a person has given") {
					t.Fatal(err)
				}
			}
			if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened(inner{8}).Of("before"), sealed...); !errors.Is(err, operation.ErrNotParked) {
				t.Errorf("what a call has returned was changed: %v", err)
			}
			if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened(inner{7}), sealed...); err != nil {
				t.Fatal(err)
			}
			if err := do(); err != nil || got.N != 7 {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// A step of the same name, of another kind, is another step: what it has written itself is no person's to give again.
func TestResolve_NotOfATxWithTheNameOfACall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	call := func(op *operation.Op) error {
		_, err := operation.Call(op, "pay", operation.Once, func(context.Context, string) (inner, error) { return inner{}, errTimeout })
		return err
	}
	d := define(func(op *operation.Op) error {
		_, err := operation.Tx(op, "pay", func(pgx.Tx) (string, error) { return "seven", nil })
		return errors.Join(err, call(op))
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	if err := operation.Resolve(t.Context(), s.pool, s.text(`select id::text from idem.operations`), operation.Happened(inner{7})); err != nil {
		t.Fatal(err)
	}
	changed := define(func(op *operation.Op) error {
		if _, err := operation.Tx(op, "pay", func(pgx.Tx) (inner, error) { return inner{}, nil }); err != nil {
			return err
		}
		return call(op)
	})
	var parked *operation.ParkedError
	if _, err := changed.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.As(err, &parked) || !strings.Contains(parked.ReasonText, "the code has changed") {
		t.Fatal(err)
	}
	if err := operation.Resolve(t.Context(), s.pool, s.text(`select id::text from idem.operations`), operation.Happened(inner{8})); !errors.Is(err, operation.ErrNotParked) {
		t.Error(err)
	}
}

// Where the value that a person has given does not decode, the person may say NotHappened after all.
func TestResolve_NotHappenedAfterABadValue(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	made := 0
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "call", operation.Once, func(context.Context, string) (inner, error) {
			made++
			return inner{}, errTimeout
		})
		return err
	})
	for _, finding := range []operation.Finding{operation.Happened("seven"), operation.NotHappened} {
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
			t.Fatal(err)
		}
		if err := operation.Resolve(t.Context(), s.pool, s.operationID(), finding); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrNotHappened) || made != 1 {
		t.Errorf("made %d times, %v", made, err)
	}
}

func TestResolve_BadValueBesideOtherCallsInDoubt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var hotel, flight inner
	d := define(func(op *operation.Op) error {
		p := operation.Parallel(op)
		unanswered := func(context.Context, string) (inner, error) { return inner{}, errTimeout }
		first, second := operation.Go(p, "hotel", operation.Once, unanswered), operation.Go(p, "flight", operation.Once, unanswered)
		err := p.Wait()
		if err == nil {
			hotel, err = first.Value()
		}
		if err == nil {
			flight, err = second.Value()
		}
		return err
	})
	do := func() error {
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
		return err
	}
	for _, finding := range []operation.Finding{
		operation.Happened("seven").Of("flight"), operation.Happened(inner{6}).Of("hotel"), operation.Happened(inner{7}),
	} {
		if err := do(); !errors.Is(err, operation.ErrParked) {
			t.Fatal(err)
		}
		if err := operation.Resolve(t.Context(), s.pool, s.text(`select id::text from idem.operations`), finding); err != nil {
			t.Fatal(err)
		}
	}
	if err := do(); err != nil || hotel.N != 6 || flight.N != 7 {
		t.Errorf("%+v, %+v, %v", hotel, flight, err)
	}
}

// The value that a call has returned itself stays, also where it no longer decodes.
func TestResolve_NotOfAnUnreadableOutcome(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := define(func(op *operation.Op) error {
		return errors.Join(outsideStep(op, "call"), operation.Sleep(op, "night", time.Hour))
	}).Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.text(`update idem.operations set wake_at = now() returning name`)
	changed := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "call", operation.Keyed(time.Hour), func(context.Context, string) (inner, error) { return inner{}, nil })
		return err
	})
	if _, err := changed.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	err := operation.Resolve(t.Context(), s.pool, s.text(`select id::text from idem.operations`), operation.Happened(inner{8}))
	if got := s.text(`select convert_from(value, 'UTF8') from idem.steps where name = 'call'`); got != "7" || !errors.Is(err, operation.ErrNotParked) {
		t.Errorf("the recorded value is %s, and Resolve returned %v", got, err)
	}
}
