package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// shipping is a child: it packs, and has a carrier fetch the parcel.
func shipping(bank *pgxpool.Pool) *operation.Definition[string] {
	return operation.Define("shipping", func(op *operation.Op, in string) (idem.Response, error) {
		err := steps(
			func() error { _, err := operation.Tx(op, "pack", write("pack")); return err },
			func() error { return operation.UndoTx(op, "unpack", writeUndo("unpack")) },
		)
		if err != nil {
			return idem.Response{}, err
		}
		fetched, err := operation.Call(op, "fetch", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			return bankTable(ctx, bank, "fetch", key)
		})
		if err != nil {
			return idem.Response{}, err
		}
		err = operation.Undo(op, "return", operation.Keyed(time.Hour), func(ctx context.Context, key string) error {
			_, err := bankTable(ctx, bank, "return", key)
			return err
		})
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

// ordering is its parent: what a child has come to decides what it does.
func ordering(child *operation.Definition[string], saw func(idem.Response, error)) *operation.Definition[string] {
	return operation.Define("ordering", func(op *operation.Op, in string) (idem.Response, error) {
		if _, err := operation.Tx(op, "reserve", write("reserve")); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "release", writeUndo("release")); err != nil {
			return idem.Response{}, err
		}
		shipped, err := operation.Child(op, "ship", child, in)
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
		if err := operation.UndoTx(op, "recall", writeUndo("recall")); err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Tx(op, "confirm", write("confirm")); err != nil {
			return idem.Response{}, err
		}
		if strings.Contains(in, "parent rejects") {
			if err := op.Checkpoint(); err != nil {
				return idem.Response{}, err
			}
			return idem.Response{}, idem.Reject(declined)
		}
		return shipped, nil
	})
}

func unseen(idem.Response, error) {}

// awaits begins the parent, and returns its id and that of its child.
func (s *shop) awaits(t *testing.T, parent *operation.Definition[string], in string, opts ...idem.Option) (id, child string) {
	t.Helper()
	_, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, in, append(opts, idem.WithWait(0))...)
	if !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	id = s.text(`select id::text from idem.operations where key = 'k'`)
	return id, operation.ChildID(id, "ship")
}

// resume goes on with operations, one after the other.
func (s *shop) resume(t *testing.T, d *operation.Definition[string], id string, want error, opts ...idem.Option) {
	t.Helper()
	if err := d.Resume(t.Context(), s.pool, id, opts...); !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", id, err, want)
	}
}

func (s *shop) state(t *testing.T, id string) operation.Status {
	t.Helper()
	status, err := operation.Show(t.Context(), s.pool, id)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func TestChildBeginsInTheCommitOfItsParentAndItsEndWakesTheParent(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := shipping(s.pool)
	parent := ordering(child, unseen)
	id, childID := s.awaits(t, parent, "book")
	s.resume(t, parent, id, idem.ErrInProgress) // it is not due
	if status := s.state(t, id); status.Kind != "child" || status.Step != "ship" || !status.WakeAt.IsZero() || len(status.Steps) != 3 ||
		status.Steps[2].Kind != "child" || status.Steps[2].Outcome != "waiting" || !status.Steps[2].DueAt.IsZero() || status.Steps[2].Child != childID {
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
	if diff := cmp.Diff([]string{"reserve", "pack", "label", "confirm"}, s.did()); diff != "" {
		t.Errorf("(-want +committed):\n%s", diff)
	}
	if res, err := operation.Wait(t.Context(), s.pool, childID); err != nil || res.Status != 201 {
		t.Errorf("the child's answer is %+v, %v", res, err)
	}
	if again, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, "book"); err != nil || string(again.Body) != string(res.Body) || !again.Replayed {
		t.Errorf("%+v, %v", again, err)
	}
	if n := s.count(`select count(*) from idem.signals where not taken`); n != 0 {
		t.Errorf("%d signals are left", n)
	}
}

// Another engine than a Worker finds both by Due.
func TestDueTellsOfAChildThatHasBegunAndOfAParentWhoseChildHasEnded(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := shipping(s.pool)
	parent := ordering(child, unseen)
	id, childID := s.awaits(t, parent, "book")
	due := func(want string) {
		t.Helper()
		pending, err := operation.Due(t.Context(), s.pool, []string{"ordering", "shipping"}, 10)
		if err != nil || len(pending) != 1 || pending[0].ID != want {
			t.Fatalf("%+v, %v, want %s", pending, err, want)
		}
	}
	due(childID)
	s.resume(t, child, childID, nil)
	due(id)
	s.resume(t, parent, id, nil)
	if got := fmt.Sprint(s.did()); got != "[reserve pack label confirm]" {
		t.Error(got)
	}
}

// What the function is given of the end of a child is the same in every run, and its own undo covers the child that has completed.
func TestParentIsToldHowItsChildHasEndedInEveryRun(t *testing.T) {
	t.Parallel()
	for in, test := range map[string]struct {
		want  operation.ChildError
		did   string
		state string
	}{
		"book":               {did: "[reserve pack label confirm]", state: "completed"},
		"parent rejects":     {did: "[reserve pack label confirm recall release]", state: "failed"},
		"child rejects":      {operation.ChildError{Rejected: &declined}, "[reserve pack unpack release]", "failed"},
		"child fails":        {operation.ChildError{}, "[reserve pack unpack release]", "undone"},
		"child is cancelled": {operation.ChildError{Cancelled: true}, "[reserve release]", "undone"},
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
				if diff := cmp.Diff(test.want.Rejected, rejectionIn(failed)); diff != "" || failed != nil && failed.Cancelled != test.want.Cancelled {
					t.Errorf("%+v: %s", failed, diff)
				}
				if fails {
					fails = false
					panic("the process has a bad day")
				}
			})
			id, childID := s.awaits(t, parent, in)
			if in == "child is cancelled" {
				if err := operation.Cancel(t.Context(), s.pool, childID); err != nil {
					t.Fatal(err)
				}
			}
			if err := child.Resume(t.Context(), s.pool, childID); errors.Is(err, idem.ErrInProgress) {
				t.Fatal(err)
			}
			func() {
				defer func() { _ = recover() }()
				_ = parent.Resume(t.Context(), s.pool, id)
			}()
			eventually(t, "the parent to end", func() bool {
				_ = parent.Resume(t.Context(), s.pool, id)
				return s.count(`select count(*) from idem.operations where ended_at is not null`) == 2
			})
			if len(seen) < 2 || seen[0] != seen[1] {
				t.Errorf("it saw %q", seen)
			}
			if got := fmt.Sprint(s.did()); got != test.did {
				t.Errorf("what is committed is %s, want %s", got, test.did)
			}
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

// The error of a child is known when it comes back through another step.
func TestErrorOfAChildIsItselfWhenAnotherStepReturnsIt(t *testing.T) {
	t.Parallel()
	seen := sameTwice(t, func(op *operation.Op) map[string]string {
		_, err := operation.Tx(op, "through", func(pgx.Tx) (int, error) {
			return 0, operation.Final(&operation.ChildError{OperationID: "id", Rejected: &declined})
		})
		var failed *operation.ChildError
		return map[string]string{"as": fmt.Sprint(errors.As(err, &failed)), "said": fmt.Sprint(err), "rejected": fmt.Sprint(rejectionIn(failed))}
	})
	if seen["as"] != "true" {
		t.Error(seen)
	}
}

// A child that waits for a person keeps its parent waiting.
func TestParkedChildKeepsItsParentWaitingUntilAPersonHasSeenToIt(t *testing.T) {
	t.Parallel()
	for does, test := range map[string]struct {
		act  func(ctx context.Context, pool *pgxpool.Pool, id string) error
		want string
	}{
		"resolve": {func(ctx context.Context, pool *pgxpool.Pool, id string) error {
			return operation.Resolve(ctx, pool, id, operation.Happened("by hand"))
		}, "completed"},
		"refuse": {func(ctx context.Context, pool *pgxpool.Pool, id string) error {
			return operation.Resolve(ctx, pool, id, operation.Refused(errDeclined))
		}, "undone"},
		"retry": {func(ctx context.Context, pool *pgxpool.Pool, id string) error {
			return operation.Resolve(ctx, pool, id, operation.NotHappened)
		}, "completed"},
	} {
		t.Run(does, func(t *testing.T) {
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
			if status := s.state(t, id); status.State != "running" || status.Steps[2].Child != childID || s.state(t, childID).State != "parked" {
				t.Errorf("the parent is %+v", status)
			}
			answers = nil
			if err := test.act(t.Context(), s.pool, childID); err != nil {
				t.Fatal(err)
			}
			s.work(t, parent, child)
			eventually(t, "both to end", func() bool { return s.count(`select count(*) from idem.operations where state = $1`, test.want) == 2 })
		})
	}
}

// The parent ends when the child has: what is undone is undone from the inside out.
func TestCancelOfAParentCancelsTheChildThatItAwaits(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := operation.Define("slow", func(op *operation.Op, _ string) (idem.Response, error) {
		return created, steps(
			func() error { _, err := operation.Tx(op, "pack", write("pack")); return err },
			func() error { return operation.UndoTx(op, "unpack", writeUndo("unpack")) },
			func() error { return operation.Sleep(op, "pause", time.Hour) },
		)
	})
	parent := ordering(child, unseen)
	id, childID := s.awaits(t, parent, "")
	s.resume(t, child, childID, idem.ErrInProgress)
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	s.resume(t, parent, id, idem.ErrInProgress)
	if got := fmt.Sprint(s.did()); got != "[reserve pack]" || !s.state(t, childID).Cancelled {
		t.Errorf("%s is committed, and the child is %+v", got, s.state(t, childID))
	}
	s.resume(t, child, childID, operation.ErrCancelled)
	s.resume(t, parent, id, operation.ErrCancelled)
	if got := fmt.Sprint(s.did()); got != "[reserve pack unpack release]" {
		t.Errorf("%s is committed", got)
	}
}

// To cancel a child again where it is parked means to leave a call as it is: that is for a person to say of the child.
func TestSecondCancelOfAParentSaysNothingToItsParkedChild(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := operation.Define("careless", func(op *operation.Op, _ string) (idem.Response, error) {
		return created, steps(
			func() error { return outsideStep(op, "charge") },
			func() error { return operation.Sleep(op, "pause", time.Hour) },
		)
	})
	parent := ordering(child, unseen)
	id, childID := s.awaits(t, parent, "")
	s.resume(t, child, childID, idem.ErrInProgress)
	for range 2 {
		if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
			t.Fatal(err)
		}
		s.resume(t, parent, id, idem.ErrInProgress)
		s.resume(t, child, childID, operation.ErrParked)
	}
	if err := operation.Cancel(t.Context(), s.pool, childID); err != nil {
		t.Fatal(err)
	}
	s.resume(t, child, childID, operation.ErrCancelled)
	s.resume(t, parent, id, operation.ErrCancelled)
}

// A cancelled operation is not called undone over a child that has completed: its undo is run, or it is parked.
func TestCancelOfAParentWhoseChildHasCompletedGoesOnToTheUndoOfTheChild(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := shipping(s.pool)
	parent := ordering(child, unseen)
	id, childID := s.awaits(t, parent, "")
	s.resume(t, child, childID, nil)
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	s.resume(t, parent, id, operation.ErrCancelled)
	if got := fmt.Sprint(s.did()); got != "[reserve pack label recall release]" {
		t.Errorf("%s is committed", got)
	}
}

func TestCancelOfAParentParksItIfNothingTakesItsCompletedChildBack(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := shipping(s.pool)
	parent := operation.Define("careless", func(op *operation.Op, in string) (idem.Response, error) {
		res, err := operation.Child(op, "ship", child, in)
		return res, err
	})
	id, childID := s.awaits(t, parent, "")
	s.resume(t, child, childID, nil)
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	s.resume(t, parent, id, operation.ErrParked)
	if reason := s.state(t, id).Reason; !strings.Contains(reason, `child "ship" has happened, which no undo takes back`) {
		t.Error(reason)
	}
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil { // which leaves it as it is
		t.Fatal(err)
	}
	s.resume(t, parent, id, operation.ErrCancelled)
	if s.state(t, childID).State != "completed" {
		t.Error(s.state(t, childID))
	}
}

// The code of the parent changes while the child is under way.
func TestChildThatWasBegunIsAwaitedWhateverTheCodeSaysOfIt(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := shipping(s.pool)
	id, childID := s.awaits(t, ordering(child, unseen), "book")
	s.resume(t, child, childID, nil)
	renamed := operation.Define("ordering", func(op *operation.Op, in string) (idem.Response, error) {
		if err := steps(func() error { _, err := operation.Tx(op, "reserve", write("reserve")); return err },
			func() error { return operation.UndoTx(op, "release", writeUndo("release")) }); err != nil {
			return idem.Response{}, err
		}
		return operation.Child(op, "send", child, in)
	})
	s.resume(t, renamed, id, operation.ErrParked)
	if reason := s.state(t, id).Reason; !strings.Contains(reason, `recorded as child "ship", and the code asks for child "send"`) {
		t.Error(reason)
	}
	if err := operation.Retry(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	another := operation.Define("another", func(*operation.Op, string) (idem.Response, error) { return created, nil })
	changed := operation.Define("ordering", func(op *operation.Op, in string) (idem.Response, error) {
		if err := steps(func() error { _, err := operation.Tx(op, "reserve", write("reserve")); return err },
			func() error { return operation.UndoTx(op, "release", writeUndo("release")) }); err != nil {
			return idem.Response{}, err
		}
		if op.Changed("a check") {
			return idem.Response{}, errors.New("it has come past this point")
		}
		return operation.Child(op, "ship", another, "something else")
	})
	s.resume(t, changed, id, nil)
	if n := s.count(`select count(*) from idem.operations`); n != 2 {
		t.Errorf("there are %d operations", n)
	}
	res, err := changed.Do(t.Context(), s.pool, scope, "k", hashA, "book")
	if want := "fetchd " + operation.CallKey(childID, "call", "fetch"); err != nil || string(res.Body) != want {
		t.Errorf("%s, %v", res.Body, err)
	}
}

// A child is a parent, the same name is used twice, and one connection is all there is.
func TestChildrenOfChildrenComeToAnEndInOneProcessWithOneConnection(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]string{"": "", "serializable by default": "serializable"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, maxConns(1), func(c *pgxpool.Config) {
				if isolation != "" {
					c.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
				}
			})
			grandchild := operation.Define("grandchild", func(op *operation.Op, in string) (idem.Response, error) {
				_, err := operation.Tx(op, "write", write("grandchild "+in))
				return idem.Response{Status: 200, Body: []byte(in)}, err
			})
			twice := func(name string, of *operation.Definition[string]) *operation.Definition[string] {
				return operation.Define(name, func(op *operation.Op, in string) (idem.Response, error) {
					var body string
					for _, which := range []string{"1", "2"} {
						res, err := operation.Child(op, "begin", of, in+which)
						if err != nil {
							return idem.Response{}, err
						}
						body += string(res.Body)
					}
					_, err := operation.Tx(op, "write", write(name+" "+in))
					return idem.Response{Status: 200, Body: []byte(body + ";")}, err
				})
			}
			child := twice("child", grandchild)
			parent := twice("parent", child)
			s.work(t, parent, child, grandchild)
			res, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit))
			if err != nil || string(res.Body) != "1112;2122;;" {
				t.Errorf("%s, %v", res.Body, err)
			}
			if got := fmt.Sprint(s.did()); got != "[grandchild 11 grandchild 12 child 1 grandchild 21 grandchild 22 child 2 parent ]" {
				t.Errorf("%s is committed", got)
			}
		})
	}
}

// The process that begins a child need not be able to work on it, and that which ends it knows nothing of the parent.
func TestChildIsDoneByAWorkerThatHasItsDefinition(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	elsewhere := operation.Define("shipping", func(*operation.Op, string) (idem.Response, error) {
		panic("its code is not deployed here")
	})
	s.work(t, shipping(s.pool))
	res, err := ordering(elsewhere, unseen).Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit))
	if err != nil || res.Status != 201 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestInputAndEndOfAChildAreSealed(t *testing.T) {
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
		if n := s.count(readable); n != 0 {
			t.Error(readable)
		}
	}
	s.resume(t, parent, id, idem.ErrUnreadable)
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	s.resume(t, parent, id, nil, sealed)
	if res, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, "", sealed); err != nil || string(res.Body) != "secret of a secret" {
		t.Errorf("%s, %v", res.Body, err)
	}
	if n := s.count(`select count(*) from idem.steps where position('secret'::bytea in value) > 0`); n != 0 {
		t.Error("a step is readable")
	}
}

func TestChildOutOfTurnIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		begin func(op *operation.Op, child *operation.Definition[string]) error
		want  error
	}{
		"among parallel calls": {func(op *operation.Op, child *operation.Definition[string]) error {
			calls := operation.Parallel(op)
			operation.Go(calls, "air", operation.Once, func(context.Context, string) (int, error) { return 0, nil })
			_, err := operation.Child(op, "ship", child, "")
			return err
		}, operation.ErrMisused},
		"inside of a step": {func(op *operation.Op, child *operation.Definition[string]) error {
			_, err := operation.Tx(op, "tx", func(pgx.Tx) (int, error) {
				_, err := operation.Child(op, "ship", child, "")
				return 0, err
			})
			return err
		}, operation.ErrMisused},
		"with an invalid name": {func(op *operation.Op, child *operation.Definition[string]) error {
			_, err := operation.Child(op, "#", child, "")
			return err
		}, operation.ErrInvalidName},
		"with too large an input": {func(op *operation.Op, child *operation.Definition[string]) error {
			_, err := operation.Child(op, "ship", child, strings.Repeat("x", 2<<20))
			return err
		}, operation.ErrValueTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBankShop(t)
			child := shipping(s.pool)
			parent := operation.Define("parent", func(op *operation.Op, _ string) (idem.Response, error) { return created, test.begin(op, child) })
			if _, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if n := s.count(`select count(*) from idem.operations`); n != 0 {
				t.Errorf("%d operations have begun", n)
			}
		})
	}
}

// A Worker of the process that begins a child, or ends one, does not wait for its next look.
func TestWorkerOfTheSameProcessGoesOnAtOnceWhenAChildBeginsAndWhenItEnds(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	child := shipping(s.pool)
	parent := ordering(child, unseen)
	s.workRarely(t, child, parent)
	keys := 0
	eventually(t, "a parent to end", func() bool { // none of those that begin before the Worker has its session need end
		keys++
		_, err := parent.Do(t.Context(), s.pool, scope, fmt.Sprint("k", keys), hashA, "book", idem.WithWait(0))
		if !errors.Is(err, idem.ErrInProgress) {
			t.Fatal(err)
		}
		return s.count(`select count(*) from idem.operations where name = 'ordering' and state = 'completed'`) > 0
	})
}

// The commit that is to begin a child does not succeed: the function is told so like of any other, and no child has begun.
func TestConstraintThatFailsAtTheCommitOfAChildsBeginningLeavesNoChild(t *testing.T) {
	t.Parallel()
	s := newBankShop(t)
	if _, err := s.pool.Exec(t.Context(), `create table once (number int unique deferrable initially deferred); insert into once values (1)`); err != nil {
		t.Fatal(err)
	}
	child := shipping(s.pool)
	parent := operation.Define("violating", func(op *operation.Op, in string) (idem.Response, error) {
		if err := outsideStep(op, "before"); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Tx(op, "violate", func(tx pgx.Tx) (int, error) {
			_, err := tx.Exec(context.Background(), `insert into once values (1)`)
			return 0, err
		})
		if err != nil {
			return idem.Response{Status: 409}, nil
		}
		return operation.Child(op, "ship", child, in)
	})
	res, err := parent.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0))
	if n := s.count(`select count(*) from idem.operations`); err != nil || res.Status != 409 || n != 1 {
		t.Errorf("%+v, %v, and %d operations", res, err, n)
	}
}
