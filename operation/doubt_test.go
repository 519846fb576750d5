package operation_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

var errLost = errors.New("the answer is lost")

// begin calls d until the error of an attempt is stored, lets the caller leave, and returns the id.
func (s *shop) begin(d *operation.Definition[string]) string {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	ended := make(chan error, 1)
	go func() {
		_, err := d.Do(ctx, s.pool, scope, "k", hashA, "")
		ended <- err
	}()
	eventually(s.t, "the error of an attempt", func() bool { return s.count(`select count(*) from idem.operations where error_attempt > 0`) == 1 })
	leave()
	await(s.t, "the first call", ended)
	return s.operationID()
}

// The function of an operation that was canceled ends without an outcome of its call in doubt.
func TestCancel_DoubtSurvivesAFailingFunction(t *testing.T) {
	t.Parallel()
	charge := func(op *operation.Op, policy operation.Policy, do func(context.Context, string) (string, error)) error {
		_, err := operation.Call(op, "charge", policy, do, operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error { return nil }))
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
		"a question panics": func(op *operation.Op, fails bool) error {
			policy := operation.Asked(func(context.Context, string) (string, bool, error) {
				if fails {
					panic("no client")
				}
				return "", false, errLost
			})
			return charge(op, policy, func(context.Context, string) (string, error) { return "", errLost })
		},
		"an error before Wait": func(op *operation.Op, fails bool) error {
			calls := operation.Parallel(op)
			operation.Go(calls, "charge", operation.Keyed(time.Hour), func(context.Context, string) (string, error) { return "", errLost },
				operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error { return nil }))
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
			d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
				return created, program(op, fails.Load())
			})
			id := s.begin(d)
			must(t, operation.Cancel(t.Context(), s.pool, id))
			fails.Store(true)
			for range 10 {
				func() {
					defer func() { _ = recover() }()
					_ = d.Resume(t.Context(), s.pool, id)
				}()
				s.exec(`update idem.operations set wake_at = now()`)
			}
			s.wantParked(id, operation.ReasonFunctionFailed)
		})
	}
}

// The COMMIT that begins a call was not acknowledged, so the process knows that no attempt was sent.
// After the attempt it knows that no more.
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
				WithBackoff(2*time.Second, 2*time.Second)
			d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
				if err := outsideStep(op, "before"); err != nil {
					return idem.Response{}, err
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
				return created, err
			})
			want(t, operation.ErrCanceled)(d.Do(t.Context(), s.through(proxy).pool, scope, "k", hashA, "", idem.WithWait(limit)))
			await(t, "the loss", trap.Fired())
			if n := charges.Load(); n != 1 {
				t.Errorf("%d charges", n)
			}
		})
	}
}

// A person corrects the value of one call while another is in doubt.
func TestResolve_OfOneCallLeavesAnotherInDoubt(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"call", "undo"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			changed, made := false, 0
			once := func() error {
				if made++; made == 1 {
					return errLost
				}
				return nil
			}
			d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
				var err error
				if changed {
					_, err = operation.Call(op, "book", operation.Once, func(context.Context, string) (string, error) { return "", errLost })
				} else {
					_, err = operation.Call(op, "book", operation.Once, func(context.Context, string) (int, error) { return 0, errLost })
				}
				switch {
				case err != nil:
				case of == "call":
					_, err = operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) { return "", once() })
				default:
					_, err = operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
						operation.UndoCall(operation.Once, func(context.Context, string, string) error { return once() }))
					err = first(err, errRejected)
				}
				return created, err
			})
			want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
			id := s.operationID()
			must(t, operation.Resolve(t.Context(), s.pool, id, operation.Happened(17)))
			want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
			changed = true
			must(t, operation.Retry(t.Context(), s.pool, id))
			want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
			s.wantParked(id, operation.ReasonValueUnreadable)
			must(t, operation.Resolve(t.Context(), s.pool, id, operation.Happened("17")))
			want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
			s.wantParked(id, operation.ReasonCallInDoubt)
			if made != 1 {
				t.Errorf("the %s that is Once was made %d times", of, made)
			}
		})
	}
}

// A process that was cut off from the database gives a call up. Meanwhile another one records it as
// done, which counts.
func TestMemory_GivesWayToTheRecord(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy := pgtest.Proxy(t, s.dsn)
	d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
		if err := outsideStep(op, "before"); err != nil {
			return created, err
		}
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (string, error) {
			proxy.Refuse(pgproxy.Reset)
			proxy.Cut(pgproxy.Reset)
			return "", operation.Final(operation.NotSent(errors.New("no credentials")))
		})
		return created, err
	})
	behind := s.through(proxy)
	_, err := d.Do(t.Context(), behind.pool, scope, "k", hashA, "")
	if err == nil {
		t.Fatal("the database was away, and the call has an answer")
	}
	s.exec(`insert into idem.steps (operation_id, seq, kind, name, outcome, value, recorded_at) select id, seq, kind, step, 'done', '"receipt"', now() from idem.operations`)
	s.exec(`update idem.operations set kind = '', seq = 0, step = '', owner = null, epoch = epoch + 1, wake_at = now()`)
	proxy.Admit()
	eventually(t, "the answer", func() bool {
		_, err = d.Do(t.Context(), behind.pool, scope, "k", hashA, "")
		return !errors.Is(err, idem.ErrInProgress)
	})
	if err != nil {
		t.Errorf("the call is recorded as done, and the operation ends in %v", err)
	}
}

// New code makes calls one after the other that older code made at the same time, or the other way
// round, while the operation is canceled.
func TestCancel_OfCallsThatAreParallelNoMore(t *testing.T) {
	t.Parallel()
	keyed := operation.Keyed(time.Hour)
	undo := operation.UndoCall(keyed, func(context.Context, string, string) error { return nil })
	t.Run("sequential", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var changed atomic.Bool
		asked := operation.Asked(func(context.Context, string) (string, bool, error) {
			if changed.Load() {
				return "", false, nil
			}
			return "", false, errLost
		})
		lost := func(context.Context, string) (string, error) { return "", errLost }
		d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
			if !changed.Load() {
				calls := operation.Parallel(op)
				operation.Go(calls, "ask", asked, lost, undo)
				operation.Go(calls, "charge", keyed, lost, undo)
				return created, calls.Wait()
			}
			_, err := operation.Call(op, "ask", asked, lost, undo)
			if err == nil {
				_, err = operation.Call(op, "charge", keyed, lost, undo)
			}
			return created, err
		})
		id := s.begin(d)
		must(t, operation.Cancel(t.Context(), s.pool, id))
		changed.Store(true)
		_ = d.Resume(t.Context(), s.pool, id)
		s.wantParked(id, operation.ReasonCodeChanged)
	})
	t.Run("parallel", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var changed atomic.Bool
		charge := func(context.Context, string) (string, error) {
			if changed.Load() {
				return "receipt", nil
			}
			return "", errLost
		}
		d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
			if !changed.Load() {
				_, err := operation.Call(op, "charge", keyed, charge, undo)
				return created, err
			}
			calls := operation.Parallel(op)
			operation.Go(calls, "charge", keyed, charge, undo)
			operation.Go(calls, "mail", keyed, charge)
			return created, calls.Wait()
		})
		id := s.begin(d)
		must(t, operation.Cancel(t.Context(), s.pool, id, operation.WithoutCalling()))
		changed.Store(true)
		_ = d.Resume(t.Context(), s.pool, id)
		s.wantParked(id, operation.ReasonCallInDoubt)
		must(t, operation.Cancel(t.Context(), s.pool, id))
		_ = d.Resume(t.Context(), s.pool, id)
		if status, err := operation.Show(t.Context(), s.pool, id); err != nil || status.State != operation.StateUndone {
			t.Errorf("%+v, %v", status, err)
		}
	})
}

func TestWithMaxAttempts_HoldsBesideALongBackoff(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var attempts atomic.Int32
	d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
		calls := operation.Parallel(op)
		operation.Go(calls, "charge", operation.Keyed(time.Hour).WithMaxAttempts(2).WithBackoff(time.Millisecond, time.Millisecond),
			func(context.Context, string) (string, error) {
				attempts.Add(1)
				return "", errLost
			})
		operation.Go(calls, "mail", operation.Keyed(time.Hour).WithBackoff(time.Minute, time.Minute),
			func(context.Context, string) (string, error) { return "", operation.NotSent(errLost) })
		return created, calls.Wait()
	})
	want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)))
	for range 3 {
		s.exec(`update idem.operations set wake_at = now()`)
		_ = d.Resume(t.Context(), s.pool, s.operationID())
	}
	if n := attempts.Load(); n != 2 {
		t.Errorf("%d attempts", n)
	}
}

func TestPreviewCancel_SaysThatAnUndoInDoubtParks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
			operation.UndoCall(operation.Once, func(context.Context, string, string) error { return errLost }))
		return created, first(err, errRejected)
	})
	want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	preview, err := operation.PreviewCancel(t.Context(), s.pool, s.operationID())
	if err != nil || preview.Parks != operation.ReasonCallInDoubt || strings.Join(preview.InDoubt, " ") != "charge" {
		t.Errorf("%+v, %v", preview, err)
	}
}
