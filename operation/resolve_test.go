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

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// stuck is an operation that is parked at a call that is Once, and its id. The call has a value of
// a type of its own. do calls Do again.
func stuck(t *testing.T, s *shop, sealed idem.Option, opts ...operation.Option) (c *stuckCall, id string, do func() (idem.Result, error)) {
	t.Helper()
	c = &stuckCall{}
	c.Definition = define(func(op *operation.Op) error {
		if err := outsideStep(op, "before"); err != nil {
			return err
		}
		c.value, c.err = operation.Call(op, "call", operation.Once, func(context.Context, string) (inner, error) { return inner{}, errTimeout })
		return c.err
	}, opts...)
	do = func() (idem.Result, error) { return s.do(c.Definition, sealed) }
	return c, parkedAt(t, "call", operation.ReasonCallInDoubt)(do()).OperationID, do
}

type stuckCall struct {
	*operation.Definition[string]
	value inner
	err   error
}

// gobCodec is a codec other than JSON.
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
	s, sealed := newShop(t), sealerOf(7)
	c, id, do := stuck(t, s, sealed, operation.WithErrors(&coded{}))
	finding := operation.Refused(fmt.Errorf("%w: %w", errSentinel, &coded{"declined"}))
	must(t, c.Resolve(t.Context(), s.pool, id, finding, sealed))
	_, err := do()
	if !operation.IsFinal(c.err) || !errors.Is(c.err, errDeclined) || !errors.Is(err, errSentinel) {
		t.Errorf("the function got %v, and the caller %v", c.err, err)
	}
}

func TestResolve_OfAnUndo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for name, test := range map[string]struct {
		finding operation.Finding
		undos   int
		err     error
	}{
		"Happened":    {operation.Happened(nil), 1, nil},
		"NotHappened": {operation.NotHappened, 2, nil},
		"Refused":     {operation.Refused(nil), 1, operation.ErrNotParked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			parked := parkedAt(t, "charge", operation.ReasonCallInDoubt)(d.Do(t.Context(), s.pool, scope, name, hashA, ""))
			if status, err := operation.Show(t.Context(), s.pool, parked.OperationID); err != nil || status.Kind != "undo" || !slices.Equal(status.Undos, []string{"charge"}) {
				t.Errorf("%+v, %v", status, err)
			}
			preview, err := operation.PreviewCancel(t.Context(), s.pool, parked.OperationID)
			if err != nil || preview.Parks != operation.ReasonCallInDoubt || !slices.Equal(preview.InDoubt, []string{"charge"}) {
				t.Errorf("%+v, %v, want charge in doubt", preview, err)
			}
			want(t, test.err)(nil, operation.Resolve(t.Context(), s.pool, parked.OperationID, test.finding))
			if test.err != nil {
				return
			}
			if res, err := d.Do(t.Context(), s.pool, scope, name, hashA, ""); err != nil || !res.Rejected || undos != test.undos {
				t.Errorf("%+v, %v after %d undos", res, err, undos)
			}
		})
	}
}

// The value that a person gives is stored by the codec of the definition.
func TestResolve_OfADefinitionUsesItsCodec(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c, id, do := stuck(t, s, sealerOf(7), operation.WithCodec(gobCodec{}))
	must(t, c.Resolve(t.Context(), s.pool, id, operation.Happened(inner{7}), sealerOf(7)))
	if _, err := do(); err != nil || c.value.N != 7 {
		t.Errorf("%+v, %v", c.value, err)
	}
}

// A value that does not decode parks the operation again, and Resolve takes another one. Other
// steps cannot be resolved.
func TestResolve_BadValueIsGivenAgain(t *testing.T) {
	t.Parallel()
	s, sealed := newShop(t), sealerOf(7)
	c, id, do := stuck(t, s, sealed)
	for range 2 {
		must(t, operation.Resolve(t.Context(), s.pool, id, operation.Happened("seven"), sealed))
		if parked := parkedAt(t, "call", operation.ReasonValueUnreadable)(do()); !strings.Contains(parked.ReasonText, "a person has given") {
			t.Error(parked)
		}
	}
	if err := operation.Resolve(t.Context(), s.pool, id, operation.Happened(inner{8}).Of("before"), sealed); !errors.Is(err, operation.ErrNotParked) {
		t.Errorf("what a call has returned was changed: %v", err)
	}
	must(t, operation.Resolve(t.Context(), s.pool, id, operation.Happened(inner{7}), sealed))
	if _, err := do(); err != nil || c.value.N != 7 {
		t.Errorf("%+v, %v", c.value, err)
	}
}

// unsure is an operation that parks at a Once call. Its undo and its end write rows.
func unsure(s *shop, calls *int, fail *error) *operation.Definition[string] {
	return define(func(op *operation.Op) error {
		if _, err := operation.Tx(op, "before", write("before"), undoBy[string]("undo before")); err != nil {
			return err
		}
		value, err := operation.Call(op, "call", operation.Once, func(context.Context, string) (string, error) {
			*calls++
			return "by the call", *fail
		}, undoBy[string]("undo call"))
		if err == nil {
			_, err = operation.Tx(op, "after", write(value))
		}
		return err
	})
}

// act is what a person does about an operation.
type act func(ctx context.Context, s *shop, id string) error

func retry(ctx context.Context, s *shop, id string) error { return operation.Retry(ctx, s.pool, id) }

func resolve(f operation.Finding) act {
	return func(ctx context.Context, s *shop, id string) error { return operation.Resolve(ctx, s.pool, id, f) }
}

func cancelWith(opts ...operation.CancelOption) act {
	return func(ctx context.Context, s *shop, id string) error { return operation.Cancel(ctx, s.pool, id, opts...) }
}

func TestParked_ResolveRetryCancel(t *testing.T) {
	t.Parallel()
	happened, cancel := resolve(operation.Happened("by a person")), cancelWith()
	for _, test := range []struct {
		name string
		acts []act
		want string
		err  error
	}{
		{"it has happened", []act{happened}, "before by a person", nil},
		{"it has not happened", []act{resolve(operation.NotHappened)}, "before undo before", operation.ErrNotHappened},
		{"it was refused", []act{resolve(operation.Refused(errDeclined))}, "before undo before", errDeclined},
		{"it was rejected", []act{resolve(operation.Refused(errRejected))}, "before undo before", nil},
		{"not known", []act{retry}, "before", operation.ErrParked},
		{"not known, and not wanted any more", []act{cancel}, "before", operation.ErrParked},
		{"it has happened, and is not wanted any more", []act{happened, cancel}, "before undo call undo before", operation.ErrCanceled},
		{"it has not happened, and is not wanted any more", []act{resolve(operation.NotHappened), cancel}, "before undo before", operation.ErrCanceled},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			calls, fail := 0, errTimeout
			d := unsure(s, &calls, &fail)
			id := parkedAt(t, "call", operation.ReasonCallInDoubt)(s.do(d)).OperationID
			if status := s.wantParked(id, operation.ReasonCallInDoubt); status.Step != "call" || status.Name != "program" {
				t.Errorf("%+v", status)
			}
			fail = nil
			for _, act := range test.acts {
				must(t, act(t.Context(), s, id))
			}
			res, err := s.do(d)
			if !errors.Is(err, test.err) || res.Rejected != (test.name == "it was rejected") || calls != 1 {
				t.Errorf("got %+v, %v, want %v after one call: %d", res, err, test.err, calls)
			}
			s.wantDid(test.want)
		})
	}
}

func TestOperator_RefusesUnknownAndEnded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	want(t, nil)(s.checkout().Do(t.Context(), s.pool, scope, "k", hashA, "book"))
	id := s.operationID()
	for _, do := range []act{retry, cancelWith(), resolve(operation.Happened(1))} {
		for _, unknown := range []string{"", "'; drop table", unknownID} {
			want(t, operation.ErrUnknownOperation)(nil, do(t.Context(), s, unknown))
		}
		want(t, operation.ErrNotParked)(nil, do(t.Context(), s, id))
	}
}

func TestShow_HasScopeAndSteps(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls, fail := 0, errTimeout
	want(t, operation.ErrParked)(unsure(s, &calls, &fail).Do(t.Context(), s.pool, scope, "k", hashA, ""))
	status := s.state(t, s.operationID())
	var steps []string
	for _, step := range status.Steps {
		if age := status.WakeAt.Sub(step.RecordedAt); age < -time.Minute || age > time.Minute {
			t.Errorf("%s was recorded at %v", step.Name, step.RecordedAt)
		}
		steps = append(steps, fmt.Sprint(step.Kind, " ", step.Name, " ", step.Outcome, " ", step.Undos))
	}
	if diff := cmp.Diff([]string{"tx before done 1", "call call begun 1"}, steps); diff != "" || status.Scope != scope {
		t.Errorf("scope %q; steps (-want +got):\n%s", status.Scope, diff)
	}
}

// acts returns the audit, one act a line.
func (s *shop) acts() string {
	s.t.Helper()
	return s.text(`select coalesce(string_agg(concat_ws('|', act, outcome, role = session_user, person, reason, step, scope, key), e'\n' order by at), '') from idem.audit`)
}

// parkedAtCall parks an operation whose key is abridged in the audit, and returns its id.
func parkedAtCall(t *testing.T, s *shop) string {
	t.Helper()
	calls, fail := 0, errTimeout
	want(t, operation.ErrParked)(unsure(s, &calls, &fail).Do(t.Context(), s.pool, scope, "a-key-of-some-length", hashA, ""))
	return s.operationID()
}

func TestAudit_OneRowForEachAct(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		do         act
	}{
		{"retry", "retry|running", retry},
		{"cancel without calling", "cancel|to be undone, without calling", cancelWith(operation.WithoutCalling())},
		{"happened", "resolve|happened", resolve(operation.Happened("by a person"))},
		{"not happened", "resolve|not happened", resolve(operation.NotHappened)},
		{"refused", "resolve|refused", resolve(operation.Refused(nil))},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			id := parkedAtCall(t, s)
			ctx := idem.WithReason(idem.WithPerson(t.Context(), "ann\x00@example.com"), strings.Repeat("é", 501))
			must(t, test.do(ctx, s, id))
			want := test.want + "|t|ann\uFFFD@example.com|" + strings.Repeat("é", 500) + "|call|" + scope + `|a-ke…(20)`
			if diff := cmp.Diff(want, s.acts()); diff != "" {
				t.Error(diff)
			}
			if at := s.text(`select (operation_id = $1)::text from idem.audit`, id); at != "true" {
				t.Error("the row is of another operation")
			}
		})
	}
}

func TestAudit_NoRowForARefusedAct(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := parkedAtCall(t, s)
	status := s.state(t, id)
	status.Epoch++
	for name, err := range map[string]error{
		"another epoch":         operation.Resolve(t.Context(), s.pool, id, operation.NotHappened.As(status)),
		"another step":          operation.Resolve(t.Context(), s.pool, id, operation.NotHappened.Of("elsewhere")),
		"no such operation":     operation.Retry(t.Context(), s.pool, unknownID),
		"a value without codec": operation.Resolve(t.Context(), s.pool, id, operation.Happened(make(chan int))),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got := s.acts(); got != "" {
		t.Errorf("recorded: %s", got)
	}
	if state := s.text(`select state from idem.operations`); state != "parked" {
		t.Errorf("the operation is %s", state)
	}
}
