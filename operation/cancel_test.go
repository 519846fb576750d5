package operation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// wantParked fails the test unless the operation is parked for a reason.
func (s *shop) wantParked(id string, reason operation.Reason) operation.Status {
	s.t.Helper()
	status, err := operation.Show(s.t.Context(), s.pool, id)
	if err != nil || status.State != operation.StateParked || status.Reason != reason {
		s.t.Fatalf("it is %s for %q (%s), %v, want %q", status.State, status.Reason, status.ReasonText, err, reason)
	}
	return status
}

// wantState fails the test unless the operation is in a state, with these steps kept.
func (s *shop) wantState(id string, state operation.State, kept ...string) {
	s.t.Helper()
	if status, err := operation.Show(s.t.Context(), s.pool, id); err != nil || status.State != state || !slices.Equal(status.Kept, kept) {
		s.t.Errorf("%+v, %v, want it %s with %q kept", status, err, state, kept)
	}
}

// doubtful is an operation whose call is in doubt, with the number of its charges, refunds and
// questions.
type doubtful struct {
	*operation.Definition[string]
	charges, refunds, asks atomic.Int32
}

// inDoubt begins an operation and leaves its call in doubt.
func (s *shop) inDoubt(policy func(*doubtful) operation.Policy, undone bool) (d *doubtful, id string) {
	s.t.Helper()
	d = &doubtful{}
	first := true
	d.Definition = define(func(op *operation.Op) error {
		var undo []operation.Undo[string]
		if undone {
			undo = append(undo, operation.UndoCall(operation.Keyed(time.Hour), func(_ context.Context, _ string, charge string) error {
				d.refunds.Add(1)
				return nil
			}))
		}
		_, err := operation.Call(op, "charge", policy(d).WithBackoff(4*time.Second, 4*time.Second), func(ctx context.Context, _ string) (string, error) {
			if first {
				first = false
				return "", operation.Unknown(errLost)
			}
			d.charges.Add(1)
			return "charged", nil
		}, undo...)
		return err
	})
	ctx, cancel := context.WithCancelCause(s.t.Context())
	defer cancel(nil)
	go func() { // the caller leaves during the backoff
		eventually(s.t, "the first attempt", func() bool { return s.count(`select count(*) from idem.operations where error_attempt = 1`) == 1 })
		cancel(errors.New("closing time"))
	}()
	if _, err := d.Do(ctx, s.pool, scope, "k", hashA, ""); !errors.Is(err, idem.ErrInProgress) || !errors.Is(err, context.Canceled) {
		s.t.Fatal(err)
	}
	return d, s.operationID()
}

func (d *doubtful) counts() string {
	return fmt.Sprintf("%d charges, %d refunds, %d asks", d.charges.Load(), d.refunds.Load(), d.asks.Load())
}

func TestCancel_CallInDoubt(t *testing.T) {
	t.Parallel()
	keyed := func(*doubtful) operation.Policy { return operation.Keyed(time.Hour) }
	asked := func(happened bool) func(*doubtful) operation.Policy {
		return func(d *doubtful) operation.Policy {
			return operation.Asked(func(context.Context, string) (string, bool, error) {
				d.asks.Add(1)
				return "charged", happened, nil
			})
		}
	}
	repeats, asks, parks := "{[charge] false true  [charge] []}", "{[charge] true false  [charge] []}", "{[charge] false false call_in_doubt [] []}"
	for _, test := range []struct {
		name    string
		policy  func(*doubtful) operation.Policy
		undone  bool
		opts    []operation.CancelOption
		preview string
		want    string
	}{
		{"Keyed with an undo is repeated and undone", keyed, true, nil, repeats, "1 charges, 1 refunds, 0 asks"},
		{"Keyed without an undo parks", keyed, false, nil, parks, "0 charges, 0 refunds, 0 asks"},
		{"Keyed with an undo, WithoutCalling, parks", keyed, true, []operation.CancelOption{operation.WithoutCalling()}, parks, "0 charges, 0 refunds, 0 asks"},
		{"Asked that has not happened is not made", asked(false), true, nil, asks, "0 charges, 0 refunds, 1 asks"},
		{"Asked that has happened is undone", asked(true), true, nil, asks, "0 charges, 1 refunds, 1 asks"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d, id := s.inDoubt(test.policy, test.undone)
			preview, err := operation.PreviewCancel(t.Context(), s.pool, id, test.opts...)
			if got := fmt.Sprint(preview); err != nil || got != test.preview {
				t.Errorf("the preview is %s, %v, want %s", got, err, test.preview)
			}
			for range 3 { // a double click, and a retry after a lost answer
				must(t, operation.Cancel(t.Context(), s.pool, id, test.opts...))
			}
			if test.preview == parks {
				want(t, operation.ErrParked)(s.do(d.Definition))
				s.wantParked(id, operation.ReasonCallInDoubt)
				must(t, operation.Cancel(t.Context(), s.pool, id, test.opts...))
				s.wantParked(id, operation.ReasonCallInDoubt) // it is no decision about the charge
				must(t, operation.Resolve(t.Context(), s.pool, id, operation.NotHappened))
			}
			want(t, operation.ErrCanceled)(s.do(d.Definition))
			if d.counts() != test.want {
				t.Errorf("%s, want %s", d.counts(), test.want)
			}
		})
	}
}

// A call of which no attempt was sent is never sent after Cancel, whatever its backoff is.
func TestCancel_CallThatWasNotSentIsNeverSent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var canceled atomic.Bool
	var late atomic.Int32 // attempts that began after Cancel
	tried, goOn := make(chan struct{}), make(chan struct{})
	policy := operation.Keyed(time.Hour).WithBackoff(20*time.Millisecond, 20*time.Millisecond)
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "charge", policy, func(context.Context, string) (string, error) {
			if canceled.Load() {
				late.Add(1)
				return "charged", nil
			}
			tried <- struct{}{}
			<-goOn // so that no other attempt can read the record before Cancel
			return "", operation.NotSent(errors.New("the breaker is open"))
		})
		return err
	})
	ended := s.goDo(t.Context(), d)
	await(t, "an attempt", tried)
	must(t, operation.Cancel(t.Context(), s.pool, s.operationID()))
	canceled.Store(true)
	close(goOn)
	want(t, operation.ErrCanceled)(nil, await(t, "the end", ended).err)
	if n := late.Load(); n > 0 {
		t.Errorf("%d attempts after Cancel", n)
	}
}

// The key of a canceled operation is free, although its function rejects.
func TestCancel_WinsOverARejection(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	inUndo, goOn := make(chan struct{}), make(chan struct{})
	rejects := true
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return 1, nil },
			operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, int) error {
				close(inUndo)
				<-goOn
				return nil
			}))
		if err == nil && rejects {
			err = errRejected
		}
		return err
	})
	ended := s.goDo(t.Context(), d)
	await(t, "the undo", inUndo)
	id := s.operationID()
	must(t, operation.Cancel(t.Context(), s.pool, id))
	close(goOn)
	want(t, operation.ErrCanceled)(nil, await(t, "the end", ended).err)
	s.wantState(id, operation.StateUndone)
	rejects = false
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashB, ""); err != nil || res.Replayed || res.Rejected {
		t.Errorf("the key is not free: %+v, %v", res, err)
	}
}

// WithoutCode ends an operation whose code has changed by its recorded steps.
func TestCancel_WithoutCode(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	program := func(names ...string) *operation.Definition[string] {
		return define(func(op *operation.Op) (err error) {
			for _, name := range names {
				err = first(err, (book{s}).call(op, name, "undo "+name))
			}
			return first(err, operation.Sleep(op, "nap", time.Hour))
		})
	}
	id, changed := s.waits(t, program("a", "b", "c"), "k"), program("a", "x", "c")
	must(t, operation.Cancel(t.Context(), s.pool, id))
	want(t, operation.ErrParked)(changed.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantParked(id, operation.ReasonCodeChanged)
	must(t, operation.Cancel(t.Context(), s.pool, id, operation.WithoutCode()))
	want(t, operation.ErrCanceled)(changed.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantState(id, operation.StateUndone, "b", "c")
	s.wantDid("a b c undo a")
}

// Eight runs that fail or panic after Cancel park the operation, and WithoutCode ends it. Failing
// runs before Cancel do not count.
func TestCancel_FunctionThatFails(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	broken := errors.New("the template is broken")
	fails, panics := false, false
	d := operation.Define("fails", func(op *operation.Op, _ string) (idem.Response, error) {
		switch {
		case panics:
			panic("the template is broken")
		case fails:
			return idem.Response{}, broken
		}
		return created, first((book{s}).call(op, "charge", "refund"), operation.Sleep(op, "nap", time.Hour))
	})
	id := s.waits(t, d, "k")
	fails = true
	again := func() (err error) {
		defer func() {
			if recover() != nil {
				err = broken
			}
		}()
		s.elapse()
		_, err = d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit))
		return err
	}
	for range 9 {
		want(t, broken)(nil, again())
	}
	must(t, operation.Cancel(t.Context(), s.pool, id))
	for n := range 7 {
		panics = n%2 == 1
		if err := again(); !errors.Is(err, broken) {
			t.Fatalf("run %d behind Cancel: %v", n+1, err)
		}
	}
	panics = true
	_ = again()
	panics = false
	status := s.wantParked(id, operation.ReasonFunctionFailed)
	if e := status.LastError; e == nil || e.Step != "" || !strings.Contains(e.Text, "panicked") || e.Attempt != 8 {
		t.Errorf("the last error is %+v", e)
	}
	must(t, operation.Cancel(t.Context(), s.pool, id, operation.WithoutCode()))
	want(t, operation.ErrCanceled)(nil, again())
	s.wantState(id, operation.StateUndone, "charge")
}

// WithoutCode parks at an undo in doubt that the code no longer has. A step whose undo is done is
// not in Kept.
func TestCancel_WithoutCodeOfAnUndoThatWasBegun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	withUndo := func(undone bool) *operation.Definition[string] {
		return define(func(op *operation.Op) error {
			b := book{s}
			var undo []operation.Undo[int]
			if undone {
				undo = append(undo, operation.UndoCall(operation.Once, func(context.Context, string, int) error { return errLost }))
			}
			_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return 1, nil }, undo...)
			if err == nil && undone {
				err = b.call(op, "ship", "unship")
			}
			return first(err, errRejected)
		})
	}
	want(t, operation.ErrParked)(withUndo(true).Do(t.Context(), s.pool, scope, "k", hashA, ""))
	id := s.operationID()
	s.wantParked(id, operation.ReasonCallInDoubt) // ship is undone, and the refund in doubt
	must(t, operation.Cancel(t.Context(), s.pool, id, operation.WithoutCode()))
	want(t, operation.ErrParked)(withUndo(false).Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantParked(id, operation.ReasonCallInDoubt)
	must(t, operation.Resolve(t.Context(), s.pool, id, operation.Happened(nil)))
	want(t, operation.ErrCanceled)(withUndo(false).Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantState(id, operation.StateUndone)
	s.wantDid("ship unship")
}

// After Cancel WithoutCode, code may have an undo that comes before the one that was begun.
func TestCancel_WithoutCodeSettlesTheBegunUndoFirst(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	program := func(undoOfShip bool) *operation.Definition[string] {
		return define(func(op *operation.Op) error {
			b := book{s}
			_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return 1, nil },
				operation.UndoCall(operation.Once, func(ctx context.Context, _ string, _ int) error { return first(b.note(ctx, "refund"), errLost) }))
			undos := []string{"unship"}
			if !undoOfShip {
				undos = nil
			}
			return first(err, b.call(op, "ship", undos...), errRejected)
		})
	}
	want(t, operation.ErrParked)(program(false).Do(t.Context(), s.pool, scope, "k", hashA, ""))
	id := s.operationID()
	must(t, operation.Retry(t.Context(), s.pool, id))
	want(t, operation.ErrParked)(program(true).Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantParked(id, operation.ReasonCodeChanged)
	must(t, operation.Cancel(t.Context(), s.pool, id, operation.WithoutCode()))
	want(t, operation.ErrParked)(program(true).Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantParked(id, operation.ReasonCallInDoubt)
	s.wantDid("ship refund")
	must(t, operation.Resolve(t.Context(), s.pool, id, operation.Happened(nil)))
	want(t, operation.ErrCanceled)(program(true).Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantDid("ship refund unship")
}

// Cancel ends a pause. If the caller leaves during the undo, the next caller does not wait for the
// pause either.
func TestCancel_EndsAPause(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(*operation.Op) error{
		"Sleep": func(op *operation.Op) error { return operation.Sleep(op, "pause", 20*time.Hour) },
		"Await": func(op *operation.Op) error {
			_, err := operation.Await[bool](op, "pause", 20*time.Hour)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			ctx, leave := context.WithCancel(t.Context())
			refunds := 0
			d := define(func(op *operation.Op) error {
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
					operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error {
						if refunds++; refunds == 1 {
							leave()
							return errTimeout
						}
						return nil
					}))
				return first(err, pause(op))
			})
			must(t, operation.Cancel(t.Context(), s.pool, s.waits(t, d, "k")))
			want(t, context.Canceled)(d.Do(ctx, s.pool, scope, "k", hashA, "", idem.WithWait(0)))
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)); !errors.Is(err, operation.ErrCanceled) || refunds != 2 {
				t.Errorf("after %d refunds: %v", refunds, err)
			}
		})
	}
}

// A call has lost its operation, which is then canceled. The call does not begin a new one.
func TestCancel_EndsACallThatHasLostTheOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asked := operation.Asked(func(context.Context, string) (string, bool, error) { return "", false, nil })
	slow, quick := newBlocked(s, asked), newBlocked(s, asked)
	answers := s.goDo(t.Context(), slow.Definition, idem.WithWait(limit))
	await(t, "the call", slow.begun)
	s.exec(`update idem.operations set owner = null, epoch = epoch + 1`) // as if it were dead
	must(t, operation.Cancel(t.Context(), s.pool, s.operationID()))
	shopOn(t, s.dsn).work(t, quick)
	eventually(t, "the operation to be undone", func() bool { return s.count(`select count(*) from idem.operations where state = 'undone'`) == 1 })
	slow.release <- nil // its commit is refused
	if a := await(t, "the answer", answers); !errors.Is(a.err, operation.ErrCanceled) {
		t.Errorf("%+v", a)
	}
	if n := quick.calls.Load(); n > 0 || s.count(`select count(*) from idem.operations`) != 1 {
		t.Errorf("%d calls behind Cancel", n)
	}
}
