package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

// shipping is a child: it packs, and lets a carrier fetch the parcel.
func shipping(bank *pgxpool.Pool) *operation.Definition[string] {
	return operation.Define("shipping", func(op *operation.Op, in string) (idem.Response, error) {
		_, _ = operation.Tx(op, "pack", write("pack"), undoBy[string]("unpack"))
		fetched, err := operation.Call(op, "fetch", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			return bankTable(ctx, bank, "fetch", key)
		}, operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, key, _ string) error {
			_, err := bankTable(ctx, bank, "return", key)
			return err
		}))
		switch {
		case err != nil:
			return idem.Response{}, err
		case strings.Contains(in, "child rejects"):
			return idem.Response{}, idem.Reject(declined)
		case strings.Contains(in, "child fails"):
			return idem.Response{}, operation.Final(errDeclined)
		}
		_, err = operation.Tx(op, "label", write("label"))
		return idem.Response{Status: 201, Header: map[string][]string{"X-By": {"carrier"}}, Body: []byte(fetched)}, err
	})
}

// ordering is the parent: the outcome of its child decides what it does.
func ordering(child *operation.Definition[string], saw func(idem.Response, error)) *operation.Definition[string] {
	return operation.Define("ordering", func(op *operation.Op, in string) (idem.Response, error) {
		_, _ = operation.Tx(op, "reserve", write("reserve"), undoBy[string]("release"))
		shipped, err := operation.Child(op, "ship", child, in, undoBy[idem.Response]("recall"))
		var failed *operation.ChildError
		if err == nil || errors.As(err, &failed) {
			saw(shipped, err)
		}
		switch {
		case failed != nil && failed.Rejected != nil:
			return idem.Response{}, idem.Reject(*failed.Rejected)
		case err != nil:
			return idem.Response{}, err
		}
		err = localStep(op, "confirm")
		if strings.Contains(in, "parent rejects") {
			err = first(err, op.Checkpoint(), errRejected)
		}
		return shipped, err
	})
}

func unseen(idem.Response, error) {}

// awaits begins the parent, and returns its id and that of its child.
func (s *shop) awaits(t *testing.T, parent *operation.Definition[string], in string, opts ...idem.Option) (id, child string) {
	t.Helper()
	want(t, idem.ErrInProgress)(parent.Do(t.Context(), s.pool, scope, "k", hashA, in, append(opts, idem.WithWait(0))...))
	id = s.text(`select id::text from idem.operations where key = 'k'`)
	return id, operation.ChildID(id, "ship")
}

// resume resumes an operation, which ends in the wanted error.
func (s *shop) resume(t *testing.T, d *operation.Definition[string], id string, wanted error, opts ...idem.Option) {
	t.Helper()
	want(t, wanted)(nil, d.Resume(t.Context(), s.pool, id, opts...))
}

func (s *shop) state(t *testing.T, id string) operation.Status {
	t.Helper()
	status, err := operation.Show(t.Context(), s.pool, id)
	must(t, err)
	return status
}

func TestChild_BeginsWithItsParentsCommit(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := shipping(s.pool)
	parent := ordering(child, unseen)
	id, childID := s.awaits(t, parent, "book")
	s.resume(t, parent, id, idem.ErrInProgress) // it is not due
	if status := s.state(t, id); status.Kind != "child" || status.Step != "ship" || !status.WakeAt.IsZero() || len(status.Steps) != 2 ||
		status.Steps[1].Kind != "child" || status.Steps[1].Outcome != "waiting" || !status.Steps[1].DueAt.IsZero() || status.Steps[1].Child != childID {
		t.Errorf("the parent is %+v", status)
	}
	if status := s.state(t, childID); status.Parent != id || status.Scope != scope || status.Name != "shipping" || status.State != "running" {
		t.Errorf("the child is %+v", status)
	}
	s.work(t, child, parent)
	res, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, "book", idem.WithWait(limit))
	if want := "fetchd " + operation.CallKey(childID, "call", "fetch"); err != nil || res.Status != 201 || string(res.Body) != want || res.Header["X-By"][0] != "carrier" {
		t.Errorf("%+v, %v, want %s", res, err, want)
	}
	s.wantDid("reserve", "pack", "label", "confirm")
	if res, err := operation.Wait(t.Context(), s.pool, childID); err != nil || res.Status != 201 {
		t.Errorf("the child's answer is %+v, %v", res, err)
	}
	if again, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, "book"); err != nil || string(again.Body) != string(res.Body) || !again.Replayed {
		t.Errorf("%+v, %v", again, err)
	}
	s.wantCount(0, `select count(*) from idem.signals where not taken`)
}

// Every run of the parent gets the same outcome of the child. The undo of the parent undoes a
// completed child.
func TestChild_OutcomeIsReplayed(t *testing.T) {
	t.Parallel()
	for in, test := range map[string]struct {
		want  operation.ChildError
		did   string
		state operation.State
	}{
		"book":              {did: "reserve pack label confirm", state: "completed"},
		"parent rejects":    {did: "reserve pack label confirm recall release", state: "failed"},
		"child rejects":     {operation.ChildError{Rejected: &declined}, "reserve pack unpack release", "failed"},
		"child fails":       {operation.ChildError{}, "reserve pack unpack release", "undone"},
		"child is canceled": {operation.ChildError{Canceled: true}, "reserve release", "undone"},
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			s := newBankShop(t)
			child, fails := shipping(s.pool), true
			var seen []string
			parent := ordering(child, func(res idem.Response, err error) {
				var failed *operation.ChildError
				errors.As(err, &failed)
				seen = append(seen, fmt.Sprintf("%+v %v %v %v", res, err, operation.IsFinal(err), errors.Is(err, operation.ErrUndone)))
				if diff := cmp.Diff(test.want.Rejected, rejectionIn(failed)); diff != "" || failed != nil && failed.Canceled != test.want.Canceled {
					t.Errorf("%+v: %s", failed, diff)
				}
				if fails {
					fails = false
					panic("the process has a bad day")
				}
			})
			id, childID := s.awaits(t, parent, in)
			if in == "child is canceled" {
				must(t, operation.Cancel(t.Context(), s.pool, childID))
			}
			if err := child.Resume(t.Context(), s.pool, childID); errors.Is(err, idem.ErrInProgress) {
				t.Fatal(err)
			}
			s.resumeAnyhow(parent, id)
			eventually(t, "the parent to end", func() bool {
				_ = parent.Resume(t.Context(), s.pool, id)
				return s.count(`select count(*) from idem.operations where ended_at is not null`) == 2
			})
			if len(seen) < 2 || seen[0] != seen[1] {
				t.Errorf("it saw %q", seen)
			}
			s.wantDid(test.did)
			if status := s.state(t, id); status.State != test.state {
				t.Errorf("the parent is %+v, want %s", status, test.state)
			}
		})
	}
}

func rejectionIn(err *operation.ChildError) *idem.Response {
	if err == nil {
		return nil
	}
	return err.Rejected
}

// The parent waits while its child is parked.
func TestChild_Parked(t *testing.T) {
	t.Parallel()
	for want, finding := range map[string]operation.Finding{"completed": operation.Happened("by hand"), "undone": operation.NotHappened} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := newBankShop(t)
			answers := errTimeout
			child := operation.Define("once", func(op *operation.Op, _ string) (idem.Response, error) {
				body, err := operation.Call(op, "call", operation.Once, func(context.Context, string) (string, error) { return "by itself", answers })
				return idem.Response{Status: 200, Body: []byte(body)}, err
			})
			parent := ordering(child, unseen)
			id, childID := s.awaits(t, parent, "")
			s.resume(t, child, childID, operation.ErrParked)
			s.resume(t, parent, id, idem.ErrInProgress)
			if status := s.state(t, id); status.State != "running" || status.Steps[1].Child != childID || s.state(t, childID).State != "parked" {
				t.Errorf("the parent is %+v", status)
			}
			answers = nil
			must(t, operation.Resolve(t.Context(), s.pool, childID, finding))
			s.work(t, parent, child)
			eventually(t, "both to end", func() bool { return s.count(`select count(*) from idem.operations where state = $1`, want) == 2 })
		})
	}
}

// Canceling a parent cancels the child that it awaits. The child is undone before the parent, even
// if the code of the parent no longer asks for the child.
func TestCancel_ChildInProgress(t *testing.T) {
	t.Parallel()
	child := operation.Define("slow", func(op *operation.Op, _ string) (idem.Response, error) {
		return created, steps(
			func() error { _, err := operation.Tx(op, "pack", write("pack"), undoBy[string]("unpack")); return err },
			func() error { return operation.Sleep(op, "pause", time.Hour) },
		)
	})
	parent := ordering(child, unseen)
	for name, test := range map[string]struct {
		resumes *operation.Definition[string]
		opts    []operation.CancelOption
		did     string
	}{
		"with its code": {parent, nil, "reserve pack unpack release"},
		"without code": {operation.Define("ordering", func(*operation.Op, string) (idem.Response, error) { return created, nil }),
			[]operation.CancelOption{operation.WithoutCode()}, "reserve pack unpack"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBankShop(t)
			id, childID := s.awaits(t, parent, "")
			s.resume(t, child, childID, idem.ErrInProgress)
			must(t, operation.Cancel(t.Context(), s.pool, id, test.opts...))
			s.resume(t, test.resumes, id, idem.ErrInProgress)
			if got := fmt.Sprint(s.did()); got != "[reserve pack]" || !s.state(t, childID).Canceled {
				t.Errorf("%s is committed, and the child is %+v", got, s.state(t, childID))
			}
			s.resume(t, child, childID, operation.ErrCanceled)
			s.resume(t, test.resumes, id, operation.ErrCanceled)
			s.wantDid(test.did)
		})
	}
}

// WithoutCalling of the parent also applies to its child, whose call is not repeated.
func TestCancel_ChildGetsTheOptions(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	calls := 0
	child := operation.Define("paying", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(1000*time.Hour).WithBackoff(100*time.Hour, 100*time.Hour), func(context.Context, string) (string, error) {
			calls++
			return "", errTimeout
		}, undoBy[string]("refund"))
		return created, err
	})
	parent := ordering(child, unseen)
	id, childID := s.awaits(t, parent, "")
	s.resume(t, child, childID, idem.ErrInProgress)
	must(t, operation.Cancel(t.Context(), s.pool, id, operation.WithoutCalling()))
	s.resume(t, parent, id, idem.ErrInProgress)
	s.resume(t, child, childID, operation.ErrParked)
	if status := s.state(t, childID); status.Reason != operation.ReasonCallInDoubt || calls != 1 {
		t.Errorf("after %d calls it is %+v", calls, status)
	}
}

// signalsUnopened is a Sealer that cannot open a signal the first time.
type signalsUnopened struct {
	idem.Sealer
	failed *atomic.Bool
}

func (s signalsUnopened) Open(keyID string, sealed, bound []byte) ([]byte, error) {
	if bytes.Contains(bound, []byte("signal")) && s.failed.CompareAndSwap(false, true) {
		return nil, errors.New("no key yet")
	}
	return s.Sealer.Open(keyID, sealed, bound)
}

// The second case reads the outcome of the child with an error first.
func TestCancel_UndoesACompletedChild(t *testing.T) {
	t.Parallel()
	sealer := seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": bytes.Repeat([]byte{7}, 32)}})
	for name, opts := range map[string][]idem.Option{
		"plain": nil, "sealed": {idem.WithSealer(signalsUnopened{sealer, new(atomic.Bool)})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBankShop(t)
			child := shipping(s.pool)
			parent := ordering(child, unseen)
			id, childID := s.awaits(t, parent, "", opts...)
			s.resume(t, child, childID, nil, opts...)
			must(t, operation.Cancel(t.Context(), s.pool, id))
			if opts != nil {
				s.resume(t, parent, id, idem.ErrUnreadable, opts...)
				s.exec(`update idem.operations set wake_at = clock_timestamp()`)
			}
			s.resume(t, parent, id, operation.ErrCanceled, opts...)
			s.wantDid("reserve pack label recall release")
		})
	}
}

func TestChild_IsSealed(t *testing.T) {
	t.Parallel()
	s, sealed := newBankShop(t), sealerOf(7)
	child := operation.Define("secretive", func(op *operation.Op, in string) (idem.Response, error) {
		return idem.Response{Status: 200, Body: []byte("secret of " + in)}, op.Checkpoint()
	})
	parent := ordering(child, unseen)
	id, childID := s.awaits(t, parent, "a secret", sealed)
	s.resume(t, child, childID, nil, sealed)
	for _, readable := range []string{
		`select count(*) from idem.operations where position('secret'::bytea in input) > 0`,
		`select count(*) from idem.signals where position('secret'::bytea in value) > 0 or position('completed'::bytea in value) > 0`,
	} {
		s.wantCount(0, readable)
	}
	s.resume(t, parent, id, idem.ErrUnreadable)
	s.exec(`update idem.operations set wake_at = clock_timestamp()`)
	s.resume(t, parent, id, nil, sealed)
	wantBody(t, "secret of a secret")(parent.Do(t.Context(), s.pool, scope, "k", hashA, "", sealed))
	s.wantCount(0, `select count(*) from idem.steps where position('secret'::bytea in value) > 0`)
}

// When a child begins or ends, the Worker of the process does not wait for its next poll.
func TestWorker_WakesForAChild(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := shipping(s.pool)
	parent := ordering(child, unseen)
	s.workRarely(t, child, parent)
	keys := 0
	eventually(t, "a parent to end", func() bool { // a parent that begins before the Worker has its session waits for the next poll
		keys++
		_, err := parent.Do(t.Context(), s.pool, scope, fmt.Sprint("k", keys), hashA, "book", idem.WithWait(0))
		if !errors.Is(err, idem.ErrInProgress) {
			t.Fatal(err)
		}
		return s.count(`select count(*) from idem.operations where name = 'ordering' and state = 'completed'`) > 0
	})
}
