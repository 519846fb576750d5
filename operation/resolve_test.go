package operation_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"testing"

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

func TestPersonSaysThatTheOtherSideHasRefused(t *testing.T) {
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
			t.Errorf("the function was told %v, and the caller %v", c.err, err)
		}
	}
}

func TestRefusalThatNamesNoDefinitionIsOneByTypeAndText(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c, id := stuck(t, s, "stuck", operation.WithErrors(errDeclined))
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Refused(errDeclined)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), s.pool, scope, "stuck", hashA, 0); !errors.Is(err, errDeclined) || !operation.IsFinal(c.err) {
		t.Errorf("the function was told %v, and the caller %v", c.err, err)
	}
}

func TestUndoCannotBeRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		err := operation.Undo(op, "refund", operation.Once, func(context.Context, string) error { return errTimeout })
		return errors.Join(err, outsideStep(op, "charge"), idem.Reject(declined))
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	id := s.text(`select id::text from idem.operations`)
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Refused(nil)); !errors.Is(err, operation.ErrNotParked) {
		t.Error(err)
	}
	if state := s.text(`select state from idem.operations`); state != "parked" {
		t.Errorf("it is %s", state)
	}
}

// The value of a person is one of the function: it has to be stored as the function's are.
func TestResolveOfADefinitionUsesItsCodec(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c, id := stuck(t, s, "stuck", operation.WithCodec(gobCodec{}))
	if err := c.Resolve(t.Context(), s.pool, id, operation.NotHappened); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), s.pool, scope, "stuck", hashA, 0); !errors.Is(err, operation.ErrParked) { // it was made, and not answered again
		t.Fatal(err)
	}
	if err := c.Resolve(t.Context(), s.pool, id, operation.Happened(inner{7})); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), s.pool, scope, "stuck", hashA, 0); err != nil || c.value.N != 7 {
		t.Errorf("%+v, %v", c.value, err)
	}
}

func TestResolveOfADefinitionLeavesOperationsOfOthersAlone(t *testing.T) {
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
