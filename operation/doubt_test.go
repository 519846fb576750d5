package operation_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

var errLost = errors.New("the answer is lost")

// begin starts an operation, waits until a failed attempt is stored, ends the context of the caller,
// and returns the id of the operation.
func (s *shop) begin(d *operation.Definition[string]) string {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	ended := s.goDo(ctx, d)
	eventually(s.t, "the error of an attempt", func() bool { return s.count(`select count(*) from idem.operations where error_attempt > 0`) == 1 })
	leave()
	await(s.t, "the first call", ended)
	return s.operationID()
}

// resume resumes an operation whatever comes of it, also if its function panics.
func (s *shop) resumeAnyhow(d *operation.Definition[string], id string) {
	defer func() { _ = recover() }()
	_ = d.Resume(s.t.Context(), s.pool, id)
}

func lost(context.Context, string) (string, error) { return "", errLost }

// undoNothing is an undo that succeeds.
var undoNothing = operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error { return nil })

// The function of a canceled operation keeps failing while its call is in doubt. The operation
// must park.
func TestCancel_ParksIfTheFunctionFailsWithACallInDoubt(t *testing.T) {
	t.Parallel()
	charge := func(op *operation.Op, policy operation.Policy, do func(context.Context, string) (string, error)) error {
		_, err := operation.Call(op, "charge", policy, do, undoNothing)
		return err
	}
	for name, program := range map[string]func(op *operation.Op, fails bool) error{
		"a call panics": func(op *operation.Op, fails bool) error {
			return charge(op, operation.Keyed(time.Hour), func(context.Context, string) (string, error) {
				if fails {
					panic("no client")
				}
				return "", errLost
			})
		},
		"a find panics": func(op *operation.Op, fails bool) error {
			policy := operation.Asked(func(context.Context, string) (string, bool, error) {
				if fails {
					panic("no client")
				}
				return "", false, errLost
			})
			return charge(op, policy, lost)
		},
		"an error before Wait": func(op *operation.Op, fails bool) error {
			calls := operation.Parallel(op)
			operation.Go(calls, "charge", operation.Keyed(time.Hour), lost, undoNothing)
			if fails {
				return errors.New("no configuration")
			}
			return calls.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var fails atomic.Bool
			d := define(func(op *operation.Op) error { return program(op, fails.Load()) })
			id := s.begin(d)
			must(t, operation.Cancel(t.Context(), s.pool, id))
			fails.Store(true)
			for range 10 {
				s.resumeAnyhow(d, id)
				s.exec(`update idem.operations set wake_at = now()`)
			}
			s.wantParked(id, operation.ReasonFunctionFailed)
		})
	}
}

// The COMMIT before a call is not acknowledged, so the process knows that no attempt was sent. Once it
// has sent the attempt, the call is in doubt.
func TestAsked_AttemptAfterAnUnacknowledgedCommitIsInDoubt(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]pgproxy.Point{"before": pgproxy.Before(pgproxy.IsCommit), "after": pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			proxy := pgtest.Proxy(t, s.dsn)
			var charges atomic.Int32
			var trap *pgproxy.Trap
			policy := operation.Asked(func(context.Context, string) (string, bool, error) { return "receipt", charges.Load() > 0, nil }).
				WithBackoff(20*time.Millisecond, 20*time.Millisecond)
			d := define(func(op *operation.Op) error {
				if err := outsideStep(op, "before"); err != nil {
					return err
				}
				if trap == nil {
					trap = proxy.Arm(at, pgproxy.Reset)
				}
				_, err := operation.Call(op, "charge", policy, func(context.Context, string) (string, error) {
					if charges.Add(1) == 1 {
						return "", first(operation.Cancel(context.Background(), s.pool, s.operationID()), errLost)
					}
					return "receipt", nil
				})
				return err
			})
			want(t, operation.ErrCanceled)(d.Do(t.Context(), s.through(proxy).pool, scope, "k", hashA, "", idem.WithWait(limit)))
			await(t, "the reset of the connection", trap.Fired())
			if n := charges.Load(); n != 1 {
				t.Errorf("%d charges, want 1", n)
			}
		})
	}
}

// The COMMIT before a call is not acknowledged, and Cancel arrives before the process claims the
// operation again. The call was never sent, and is not sent.
func TestCancel_AfterAnUnacknowledgedCommit(t *testing.T) {
	t.Parallel()
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprint("parallel ", parallel), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			proxy := pgtest.Proxy(t, s.dsn)
			policy := operation.Asked(func(context.Context, string) (string, bool, error) { return "", false, nil })
			charges, runs, armed := 0, 0, make(chan *pgproxy.Trap, 1)
			charge := func(context.Context, string) (string, error) {
				charges++
				return "receipt", nil
			}
			d := define(func(op *operation.Op) error {
				if err := outsideStep(op, "before"); err != nil {
					return err
				}
				if runs++; runs == 1 {
					proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
					armed <- proxy.Arm(pgproxy.Before(pgproxy.Contains("TakeOperation")), pgproxy.Freeze)
				}
				if !parallel {
					_, err := operation.Call(op, "charge", policy, charge)
					return err
				}
				calls := operation.Parallel(op)
				operation.Go(calls, "charge", policy, charge)
				return calls.Wait()
			})
			through, ended := s.through(proxy), make(chan error, 1)
			go func() {
				_, err := d.Do(t.Context(), through.pool, scope, "k", hashA, "", idem.WithWait(limit))
				ended <- err
			}()
			frozen := await(t, "the claim", await(t, "the traps", armed).Fired()).Conn
			must(t, operation.Cancel(t.Context(), s.pool, s.operationID()))
			frozen.Resume()
			want(t, operation.ErrCanceled)(nil, await(t, "the end", ended))
			if charges != 0 {
				t.Errorf("%d charges", charges)
			}
		})
	}
}

// Resolve of a call whose value newer code cannot decode leaves the call "charge", or its undo, in
// doubt.
func TestResolve_OfOneCallLeavesAnotherInDoubt(t *testing.T) {
	t.Parallel()
	for _, inDoubt := range []string{"call", "undo"} {
		t.Run(inDoubt, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			changed, made := false, 0
			failFirst := func() error {
				if made++; made == 1 {
					return errLost
				}
				return nil
			}
			d := define(func(op *operation.Op) (err error) {
				if changed {
					_, err = operation.Call(op, "book", operation.Once, lost)
				} else {
					_, err = operation.Call(op, "book", operation.Once, func(context.Context, string) (int, error) { return 0, errLost })
				}
				switch {
				case err != nil:
				case inDoubt == "call":
					_, err = operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) { return "", failFirst() })
				default:
					_, err = operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
						operation.UndoCall(operation.Once, func(context.Context, string, string) error { return failFirst() }))
					err = first(err, errRejected)
				}
				return err
			})
			id := parkedAt(t, "book", operation.ReasonCallInDoubt)(s.do(d)).OperationID
			must(t, operation.Resolve(t.Context(), s.pool, id, operation.Happened(17)))
			parkedAt(t, "charge", operation.ReasonCallInDoubt)(s.do(d))
			changed = true
			must(t, operation.Retry(t.Context(), s.pool, id))
			parkedAt(t, "book", operation.ReasonValueUnreadable)(s.do(d))
			must(t, operation.Resolve(t.Context(), s.pool, id, operation.Happened("17")))
			parkedAt(t, "charge", operation.ReasonCallInDoubt)(s.do(d))
			if made != 1 {
				t.Errorf("the Once %s was made %d times, want 1", inDoubt, made)
			}
		})
	}
}

// Another process claims an operation between two attempts at its call. The first process makes no
// further attempt.
func TestCall_StopsAfterALaterClaim(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"call", "parallel", "undo"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, calls := newShop(t), 0
			policy := keyed.WithBackoff(time.Millisecond, time.Millisecond)
			charge := func(context.Context, string) (string, error) {
				if calls++; calls == 1 {
					s.exec(`update idem.operations set owner = null, epoch = epoch + 1`)
					return "", operation.NotSent(errors.New("the breaker is open"))
				}
				return "receipt", nil
			}
			d := define(func(op *operation.Op) error {
				switch kind {
				case "call":
					_, err := operation.Call(op, "charge", policy, charge)
					return err
				case "undo":
					refund := operation.UndoCall(policy, func(ctx context.Context, key, _ string) error {
						_, err := charge(ctx, key)
						return err
					})
					_, err := operation.Call(op, "charge", policy, s.bank.charge, refund)
					return first(err, errRejected)
				}
				group := operation.Parallel(op)
				operation.Go(group, "book", operation.Once, lost)
				operation.Go(group, "charge", policy, charge)
				return group.Wait()
			})
			want(t, idem.ErrInProgress)(nil, d.Resume(t.Context(), s.pool, start(s, d, "")))
			if calls != 1 {
				t.Errorf("the call was made %d times", calls)
			}
		})
	}
}

// A process that is cut off from the database fails a call in its memory. Meanwhile another process
// records the call as done, or makes the call and dies. The call has not failed.
func TestCall_OtherProcessOverridesMemory(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{
		"recorded": `with step as (insert into idem.steps (operation_id, seq, kind, name, outcome, value, recorded_at) select id, seq, kind, step, 'done', '"receipt"', now() from idem.operations)
			update idem.operations set kind = '', seq = 0, step = '', owner = null, epoch = epoch + 1, wake_at = now()`,
		"died": `update idem.operations set owner = null, epoch = epoch + 1, wake_at = now()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			proxy := pgtest.Proxy(t, s.dsn)
			calls := 0
			d := define(func(op *operation.Op) error {
				if err := outsideStep(op, "before"); err != nil {
					return err
				}
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (string, error) {
					if calls++; calls > 1 {
						return "receipt", nil
					}
					proxy.Refuse(pgproxy.Reset)
					proxy.Cut(pgproxy.Reset)
					return "", operation.Final(operation.NotSent(errors.New("no credentials")))
				})
				return err
			})
			proxied := s.through(proxy)
			_, err := d.Do(t.Context(), proxied.pool, scope, "k", hashA, "")
			if err == nil {
				t.Fatal("Do returned no error while the database was unavailable")
			}
			s.exec(other)
			proxy.Admit()
			eventually(t, "the end", func() bool {
				_, err = d.Do(t.Context(), proxied.pool, scope, "k", hashA, "")
				return s.count(`select count(*) from idem.operations where state = 'running'`) == 0
			})
			s.wantState(s.operationID(), operation.StateCompleted)
			must(t, err)
		})
	}
}

// Newer code of a canceled operation makes parallel calls in sequence, or the reverse.
func TestCancel_NewerCodeChangesParallelism(t *testing.T) {
	t.Parallel()
	keyed, undo := operation.Keyed(time.Hour), undoNothing
	t.Run("parallel to sequential", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var changed atomic.Bool
		asked := operation.Asked(func(context.Context, string) (string, bool, error) {
			if changed.Load() {
				return "", false, nil
			}
			return "", false, errLost
		})
		d := define(func(op *operation.Op) error {
			if !changed.Load() {
				calls := operation.Parallel(op)
				operation.Go(calls, "ask", asked, lost, undo)
				operation.Go(calls, "charge", keyed, lost, undo)
				return calls.Wait()
			}
			_, err := operation.Call(op, "ask", asked, lost, undo)
			if err == nil {
				_, err = operation.Call(op, "charge", keyed, lost, undo)
			}
			return err
		})
		id := s.begin(d)
		must(t, operation.Cancel(t.Context(), s.pool, id))
		changed.Store(true)
		_ = d.Resume(t.Context(), s.pool, id)
		s.wantParked(id, operation.ReasonCodeChanged)
	})
	t.Run("sequential to parallel", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var changed atomic.Bool
		charge := func(context.Context, string) (string, error) {
			if changed.Load() {
				return "receipt", nil
			}
			return "", errLost
		}
		d := define(func(op *operation.Op) error {
			if !changed.Load() {
				_, err := operation.Call(op, "charge", keyed, charge, undo)
				return err
			}
			calls := operation.Parallel(op)
			operation.Go(calls, "charge", keyed, charge, undo)
			operation.Go(calls, "mail", keyed, charge)
			return calls.Wait()
		})
		id := s.begin(d)
		must(t, operation.Cancel(t.Context(), s.pool, id, operation.WithoutCalling()))
		changed.Store(true)
		_ = d.Resume(t.Context(), s.pool, id)
		s.wantParked(id, operation.ReasonCallInDoubt)
		must(t, operation.Cancel(t.Context(), s.pool, id))
		_ = d.Resume(t.Context(), s.pool, id)
		s.wantState(id, operation.StateUndone)
	})
}

func TestWithMaxAttempts_AppliesWhileAnotherCallBacksOff(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var attempts, mails atomic.Int32
	d := define(func(op *operation.Op) error {
		calls := operation.Parallel(op)
		operation.Go(calls, "charge", operation.Keyed(time.Hour).WithMaxAttempts(2).WithBackoff(time.Millisecond, time.Millisecond),
			func(context.Context, string) (string, error) {
				attempts.Add(1)
				return "", errLost
			})
		operation.Go(calls, "mail", operation.Keyed(time.Hour).WithBackoff(time.Minute, time.Minute),
			func(context.Context, string) (string, error) {
				if mails.Add(1) > 2 {
					panic("no client")
				}
				return "", operation.NotSent(errLost)
			})
		return calls.Wait()
	})
	id := s.waits(t, d, "k")
	for range 4 {
		s.exec(`update idem.operations set wake_at = now()`)
		s.resumeAnyhow(d, id)
	}
	if n := attempts.Load(); n != 2 || mails.Load() < 4 {
		t.Errorf("%d attempts, want 2, beside %d of the other call", n, mails.Load())
	}
}

func TestRetry_GivesASpentCallNewAttemptsInNewerCode(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	parallel, attempts := true, 0
	policy := operation.Keyed(time.Hour).WithMaxAttempts(2).WithBackoff(time.Millisecond, time.Millisecond)
	charge := func(context.Context, string) (string, error) {
		attempts++
		return "", errLost
	}
	d := define(func(op *operation.Op) error {
		if parallel {
			calls := operation.Parallel(op)
			operation.Go(calls, "charge", policy, charge)
			return calls.Wait()
		}
		_, err := operation.Call(op, "charge", policy, charge)
		return err
	})
	want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	for _, wanted := range []int{4, 6} {
		must(t, operation.Retry(t.Context(), s.pool, s.operationID()))
		want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
		if attempts != wanted {
			t.Errorf("%d attempts, want %d", attempts, wanted)
		}
		parallel = false
	}
}
