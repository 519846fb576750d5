package operation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

var (
	keyed     = operation.Keyed(23 * time.Hour)
	errHiccup = errors.New("hiccup")
)

// refund is an undo that the bank knows by its key.
func (s *shop) refund() operation.Undo[string] {
	return operation.UndoCall(keyed, func(ctx context.Context, key, _ string) error {
		_, err := s.bank.charge(ctx, key)
		return err
	})
}

// start begins an operation, which no process works on yet.
func start[T any](s *shop, d *operation.Definition[T], in T) (id string) {
	s.t.Helper()
	must(s.t, pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) (err error) {
		id, err = d.Start(s.t.Context(), tx, scope, "k", hashA, in)
		return err
	}))
	return id
}

// runAgain makes the operation due and resumes it, whatever comes of that.
func runAgain[T any](s *shop, d *operation.Definition[T], id string) {
	s.exec(`update idem.operations set wake_at = now() where state = 'running' and id = $1`, id)
	_ = d.Resume(s.t.Context(), s.pool, id)
}

// New code makes calls one after another that older code has made in parallel, all or the last of
// them, and goes on after a call that fails. The undos of all calls that were made run.
func TestCancel_SequentialCodeAfterParallelCalls(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"not sent", "asked"} {
		for n := range 4 {
			t.Run(fmt.Sprint(policy, " ", n), func(t *testing.T) {
				t.Parallel()
				s, inParallel, last, canceled := newShop(t), 3, "extra", false
				opts := [][]operation.CancelOption{nil, {operation.WithoutCode()}}[n%2]
				waits, air := keyed.WithBackoff(10*time.Hour, 10*time.Hour), func(context.Context, string) (string, error) {
					return "", operation.NotSent(errHiccup)
				}
				if policy == "asked" {
					waits = operation.Asked(func(context.Context, string) (string, bool, error) { return "", false, nil }).WithBackoff(10*time.Hour, 10*time.Hour)
					air = lost
				}
				d := define(func(op *operation.Op) error {
					var errs []error
					calls := operation.Parallel(op)
					for i, name := range []string{"air", "room", last} {
						policy, do := keyed, s.bank.charge
						if name == "air" {
							policy, do = waits, air
						}
						if i < inParallel {
							operation.Go(calls, name, policy, do, s.refund())
							if i == inParallel-1 {
								errs = append(errs, calls.Wait())
							}
							continue
						}
						_, err := operation.Call(op, name, policy, do, s.refund())
						errs = append(errs, err)
					}
					if err := errors.Join(errs...); canceled && !errors.Is(err, operation.ErrNotHappened) {
						t.Errorf("the function gets %v", err)
					}
					return errors.Join(errs...)
				})
				id := start(s, d, "")
				runAgain(s, d, id)
				inParallel = 2 * (n / 2)
				must(t, operation.Cancel(t.Context(), s.pool, id, opts...))
				history, err := operation.History(t.Context(), s.pool, id)
				must(t, err)
				must(t, operation.Replay(t.Context(), history, d))
				if last = "other"; opts == nil && policy == "not sent" {
					want(t, operation.ErrParked)(nil, operation.Replay(t.Context(), history, d))
				}
				last, canceled = "extra", true
				runAgain(s, d, id)
				s.wantState(id, operation.StateUndone)
				if different, _ := s.bank.keys(); different != 4 {
					t.Errorf("the bank knows %d keys, want two charges and their refunds", different)
				}
			})
		}
	}
}

// Cancel arrives while a run is in progress that would park the operation by the rules of before.
// The next run follows the Cancel.
func TestCancel_DuringARunThatParks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy  operation.Policy
		opts    []operation.CancelOption
		changed bool // the code of the run
	}{
		"the last attempt":         {keyed.WithMaxAttempts(1), nil, false},
		"the last, WithoutCalling": {operation.Asked(func(context.Context, string) (string, bool, error) { return "found", true, nil }).WithMaxAttempts(1), []operation.CancelOption{operation.WithoutCalling()}, false},
		"changed code":             {keyed, []operation.CancelOption{operation.WithoutCode()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, entered, leave := newShop(t), make(chan bool), make(chan bool)
			inProgress, changed := true, false
			pause := func() {
				if inProgress {
					inProgress = false
					entered <- true
					<-leave
				}
			}
			d := define(func(op *operation.Op) error {
				if test.changed {
					if _, err := operation.Call(op, "charge", test.policy, s.bank.charge, s.refund()); err != nil {
						return err
					}
					if changed {
						pause()
						return operation.Sleep(op, "rest", time.Hour)
					}
					return operation.Sleep(op, "nap", time.Hour)
				}
				_, err := operation.Call(op, "charge", test.policy, func(ctx context.Context, key string) (string, error) {
					value, _ := s.bank.charge(ctx, key)
					if inProgress {
						pause()
						return "", operation.Unknown(errLost)
					}
					return value, nil
				}, s.refund())
				return err
			})
			id := start(s, d, "")
			if test.changed {
				runAgain(s, d, id)
				changed = true
			}
			ended := make(chan bool)
			go func() {
				runAgain(s, d, id)
				close(ended)
			}()
			await(t, "the run", entered)
			must(t, operation.Cancel(t.Context(), s.pool, id, test.opts...))
			leave <- true
			await(t, "the end of the run", ended)
			runAgain(s, d, id)
			s.wantState(id, operation.StateUndone)
			if different, _ := s.bank.keys(); different != 2 {
				t.Errorf("the bank knows %d keys, want a charge and its refund", different)
			}
		})
	}
}

// A fn has ended its transaction, so its writes may be committed and are recorded nowhere. The
// operation parks although Cancel has arrived.
func TestCancel_DuringARunWhoseFnEndsTheTransaction(t *testing.T) {
	t.Parallel()
	s, id := newShop(t), ""
	d := define(func(op *operation.Op) error {
		err := operation.Exec(op, "reserve", executing(`select 1`))
		return first(err, op.Checkpoint(), operation.Exec(op, "stray", func(tx pgx.Tx) error {
			must(t, operation.Cancel(t.Context(), s.pool, id))
			return executing(`commit`)(tx)
		}))
	})
	id = start(s, d, "")
	runAgain(s, d, id)
	s.wantParked(id, operation.ReasonTxEnded)
}

// A repeated Cancel needs one connection at a time. A pause that it has cut off is not over.
func TestCancel_RepeatedWithOneConnection(t *testing.T) {
	t.Parallel()
	s := newShop(t, maxConns(1))
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "charge", keyed, s.bank.charge, s.refund())
		return first(err, operation.Sleep(op, "nap", time.Hour))
	})
	id := start(s, d, "")
	runAgain(s, d, id)
	must(t, operation.Cancel(t.Context(), s.pool, id))
	must(t, operation.Cancel(t.Context(), s.pool, id))
	runAgain(s, d, id)
	s.wantState(id, operation.StateUndone)
	status, err := operation.Show(t.Context(), s.pool, id)
	if err != nil || status.Steps[1].Outcome != "waiting" {
		t.Errorf("%+v, %v", status.Steps, err)
	}
}

// A run that fails after Cancel has arrived does not put off the next run, also if it has an outcome
// of a call to record.
func TestCancel_DuringARunThatFails(t *testing.T) {
	t.Parallel()
	for name, pending := range map[string]bool{"nothing to record": false, "an outcome to record": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, entered, leave, runs := newShop(t), make(chan bool), make(chan bool), 0
			policy := keyed.WithBackoff(10*time.Hour, 10*time.Hour)
			d := define(func(op *operation.Op) error {
				runs++
				if _, err := operation.Call(op, "charge", policy, func(ctx context.Context, key string) (string, error) {
					if pending && runs < 8 {
						return "", errLost
					}
					return s.bank.charge(ctx, key)
				}, s.refund()); err != nil {
					return err
				}
				if runs == 8 {
					entered <- true
					<-leave
				}
				return errHiccup
			})
			id, ended := start(s, d, ""), make(chan bool)
			for range 7 {
				runAgain(s, d, id)
			}
			go func() {
				runAgain(s, d, id)
				close(ended)
			}()
			await(t, "the run", entered)
			must(t, operation.Cancel(t.Context(), s.pool, id))
			leave <- true
			await(t, "the end of the run", ended)
			s.wantCount(1, `select count(*) from idem.operations where state = 'running' and owner is null and wake_at <= clock_timestamp()`)
			want(t, operation.ErrCanceled)(nil, d.Resume(t.Context(), s.pool, id))
			s.wantState(id, operation.StateUndone)
		})
	}
}

// A canceled operation ends or parks after eight runs, also if it is not its function that fails.
func TestCancel_CountsFailuresOfTheLibrary(t *testing.T) {
	t.Parallel()
	for how, kept := range map[string][]string{
		"invalid policy": {"book"}, "Go without Wait": {"book"}, "error before Wait": {"book"}, "recovered panic": nil,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s, newCode := newShop(t), false
			d := define(func(op *operation.Op) (err error) {
				defer func() { // as middleware does
					if p := recover(); p != nil {
						err = fmt.Errorf("recovered: %v", p)
					}
				}()
				if _, err := operation.Call(op, "charge", keyed, s.bank.charge, s.refund()); err != nil {
					return err
				}
				policy := keyed
				switch {
				case newCode && how == "invalid policy":
					policy = operation.Keyed(time.Minute).WithAttemptTimeout(time.Hour)
				case newCode && how == "Go without Wait":
					operation.Go(operation.Parallel(op), "book", keyed, s.bank.charge, s.refund())
					return nil
				case newCode && how == "error before Wait":
					operation.Go(operation.Parallel(op), "book", keyed, s.bank.charge, s.refund())
					return errHiccup
				}
				_, err = operation.Call(op, "book", policy, func(ctx context.Context, key string) (string, error) {
					if newCode || how == "recovered panic" {
						panic("no client")
					}
					return s.bank.charge(ctx, key)
				}, s.refund())
				return first(err, errHiccup)
			})
			id := start(s, d, "")
			runAgain(s, d, id)
			newCode = true
			must(t, operation.Cancel(t.Context(), s.pool, id))
			for range 8 {
				runAgain(s, d, id)
			}
			s.wantParked(id, operation.ReasonFunctionFailed)
			must(t, operation.Cancel(t.Context(), s.pool, id, operation.WithoutCode()))
			runAgain(s, d, id)
			if kept == nil { // book is in doubt
				s.wantParked(id, operation.ReasonCallInDoubt)
			} else {
				s.wantState(id, operation.StateUndone, kept...)
			}
		})
	}
}

// The function of a canceled operation panics because of the error of the step at which the operation
// unwinds. The done steps are undone in the same run.
func TestCancel_FunctionPanicsWhereItUnwinds(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(*operation.Op) error{
		"sleep": func(op *operation.Op) error { return operation.Sleep(op, "pause", time.Hour) },
		"await": func(op *operation.Op) error {
			_, err := operation.Await[string](op, "approval", time.Hour)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, canceled := newShop(t), false
			d := define(func(op *operation.Op) error {
				_, err := operation.Call(op, "charge", keyed, s.bank.charge, s.refund())
				if err = first(err, wait(op)); err != nil && canceled {
					panic(err)
				}
				return err
			})
			id := start(s, d, "")
			runAgain(s, d, id)
			canceled = true
			must(t, operation.Cancel(t.Context(), s.pool, id))
			func() {
				defer func() { _ = recover() }()
				runAgain(s, d, id)
			}()
			s.wantState(id, operation.StateUndone)
		})
	}
}

// The input of an operation, or a value, does not decode in newer code. PreviewCancel reports whether
// the operation parks again.
func TestCancel_UnreadableInputOrValue(t *testing.T) {
	t.Parallel()
	type number struct{ N int }
	for name, test := range map[string]struct {
		steps, input bool // two calls are made; it is the input that does not decode
		notSent      bool // a call is recorded, and was never sent
		opts         []operation.CancelOption
		kept         []string // nil if it parks again, or if there is nothing to keep
		parks        bool
	}{
		"input, no step":             {input: true},
		"input, a call not sent":     {input: true, notSent: true},
		"input, a step":              {input: true, steps: true, parks: true},
		"input, a step, WithoutCode": {input: true, steps: true, opts: []operation.CancelOption{operation.WithoutCode()}, kept: []string{"charge", "book"}},
		"value":                      {steps: true, parks: true},
		"value, WithoutCode":         {steps: true, opts: []operation.CancelOption{operation.WithoutCode()}, kept: []string{"book"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			older := define(func(op *operation.Op) error {
				if !test.steps {
					calls := operation.Parallel(op)
					if test.notSent {
						operation.Go(calls, "charge", keyed.WithBackoff(time.Hour, time.Hour), func(context.Context, string) (string, error) {
							return "", operation.NotSent(errHiccup)
						})
					}
					return errors.Join(calls.Wait(), errHiccup)
				}
				_, first := operation.Call(op, "charge", keyed, s.bank.charge, s.refund())
				_, second := operation.Call(op, "book", keyed, s.bank.charge, s.refund())
				return errors.Join(first, second, errHiccup)
			})
			id := start(s, older, "text")
			runAgain(s, older, id)
			var run func()
			if test.input {
				newer := operation.Define("program", func(*operation.Op, number) (idem.Response, error) { return created, nil })
				run = func() { runAgain(s, newer, id) }
			} else {
				newer := define(func(op *operation.Op) error {
					if _, err := operation.Call(op, "charge", keyed, s.bank.charge, s.refund()); err != nil {
						return err
					}
					_, err := operation.Call(op, "book", keyed, func(context.Context, string) (number, error) { return number{}, nil },
						operation.UndoCall(keyed, func(context.Context, string, number) error { return nil }))
					return err
				})
				run = func() { runAgain(s, newer, id) }
			}
			run()
			s.wantParked(id, operation.ReasonValueUnreadable)
			p, err := operation.PreviewCancel(t.Context(), s.pool, id, test.opts...)
			if err != nil || (p.Parks == operation.ReasonValueUnreadable) != test.parks {
				t.Errorf("the preview is %+v, %v", p, err)
			}
			must(t, operation.Cancel(t.Context(), s.pool, id, test.opts...))
			run()
			if test.parks {
				s.wantParked(id, operation.ReasonValueUnreadable)
			} else {
				s.wantState(id, operation.StateUndone, test.kept...)
			}
		})
	}
}

// A Cancel that was cut off after it canceled the child is repeated: the grandchild is canceled.
func TestCancel_RepeatedReachesGrandchildren(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	nested := func(name string, child *operation.Definition[string]) *operation.Definition[string] {
		return operation.Define(name, func(op *operation.Op, _ string) (idem.Response, error) {
			if child == nil {
				return created, operation.Sleep(op, "packing", time.Hour)
			}
			return operation.Child(op, "child", child, "")
		})
	}
	grandchild := nested("grandchild", nil)
	child := nested("child", grandchild)
	parent := nested("parent", child)
	id := start(s, parent, "")
	childID := operation.ChildID(id, "child")
	grandchildID := operation.ChildID(childID, "child")
	runAgain(s, parent, id)
	runAgain(s, child, childID)
	s.exec(`update idem.operations set canceled = true, without_calling = false where id in ($1, $2)`, id, childID)
	must(t, operation.Cancel(t.Context(), s.pool, id))
	runAgain(s, grandchild, grandchildID)
	s.wantState(grandchildID, operation.StateUndone)
}

// Cancel cancels the children in progress, even if no run of the parent reaches them.
func TestCancel_ChildOfAParentThatParks(t *testing.T) {
	t.Parallel()
	s, gone := newShop(t), false
	child := operation.Define("shipping", func(op *operation.Op, _ string) (idem.Response, error) {
		if err := operation.Sleep(op, "packing", time.Hour); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "ship", keyed, s.bank.charge)
		return created, err
	})
	parent := define(func(op *operation.Op) error {
		if gone {
			return nil
		}
		_, err := operation.Child(op, "shipping", child, "")
		return err
	})
	id := start(s, parent, "")
	runAgain(s, parent, id)
	childID := operation.ChildID(id, "shipping")
	runAgain(s, child, childID)
	gone = true
	must(t, operation.Cancel(t.Context(), s.pool, id))
	runAgain(s, parent, id)
	s.wantParked(id, operation.ReasonCodeChanged)
	runAgain(s, child, childID)
	s.wantState(childID, operation.StateUndone)
}

// PreviewCancel reports that an operation parks again if its code has changed, and that a repeated
// Cancel of a parked operation changes nothing.
func TestPreviewCancel_ReportsThatTheOperationStaysParked(t *testing.T) {
	t.Parallel()
	s, name := newShop(t), "charge"
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, name, keyed, s.bank.charge, operation.UndoCall(keyed, func(context.Context, string, string) error {
			return operation.Final(errors.New("refund refused"))
		}))
		return first(err, errHiccup)
	})
	predicts := func(id string, reason operation.Reason) {
		t.Helper()
		p, err := operation.PreviewCancel(t.Context(), s.pool, id)
		must(t, err)
		must(t, operation.Cancel(t.Context(), s.pool, id))
		runAgain(s, d, id)
		if status := s.wantParked(id, reason); p.Parks != reason || !slices.Equal(p.Undos, status.Undos) || !slices.Equal(p.Undos, []string{"charge"}) {
			t.Errorf("the preview is %+v, and the undos are %q", p, status.Undos)
		}
	}
	id := start(s, d, "")
	runAgain(s, d, id)
	name = "charge the card"
	runAgain(s, d, id)
	predicts(id, operation.ReasonCodeChanged)
	name = "charge"
	must(t, operation.Retry(t.Context(), s.pool, id))
	runAgain(s, d, id)
	predicts(id, operation.ReasonUndoFailed)
}
