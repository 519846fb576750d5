package operation_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// asleep runs an operation until it sleeps, and then ends the pause.
func asleep(t *testing.T, s *shop, steps ...stepOf) {
	t.Helper()
	s.waits(t, define(func(op *operation.Op) (err error) {
		for _, step := range steps {
			err = first(err, step(op, "step"))
		}
		return err
	}), "k")
	s.elapse()
}

func named(step stepOf, name string) stepOf {
	return func(op *operation.Op, _ string) error { return step(op, name) }
}

func longSleep(op *operation.Op, _ string) error { return operation.Sleep(op, "pause", 20*time.Hour) }

func TestChanged_InputUnreadableParks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asleep(t, s, named(localStep, "reserve"), longSleep)
	d := operation.Define("program", func(*operation.Op, int) (idem.Response, error) { return created, nil })
	want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, 7))
}

func TestChanged_FalseBehindRecordedSteps(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asleep(t, s, named(localStep, "reserve"), named(outsideStep, "charge"), longSleep)
	var changed []bool
	d := define(func(op *operation.Op) error {
		err := localStep(op, "reserve")
		checks := op.Changed("fraud check")
		if checks {
			err = first(err, localStep(op, "check"))
		}
		if err := first(err, outsideStep(op, "charge"), longSleep(op, "")); err != nil {
			return err
		}
		changed = append(changed, checks, op.Changed("after the pause"))
		return nil
	})
	want(t, nil)(s.do(d))
	s.waits(t, d, "new")
	s.elapse()
	want(t, nil)(d.Do(t.Context(), s.pool, scope, "new", hashA, ""))
	if len(changed) != 4 || changed[0] || !changed[1] || !changed[2] || !changed[3] {
		t.Errorf("Changed answered %v", changed)
	}
}

// The first run rejects, and its undo fails. Later runs end in that rejection, whatever the
// function returns.
func TestChanged_RecordedRejectionCounts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(op *operation.Op) error{
		"another step":                         func(op *operation.Op) error { return localStep(op, "another") },
		"another step, whose error is dropped": func(op *operation.Op) error { return ignore(localStep(op, "another")) },
		"an answer":                            func(*operation.Op) error { return nil },
		"an error":                             func(*operation.Op) error { return errTimeout },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			rejects := true
			d := define(func(op *operation.Op) error {
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
					operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error {
						if rejects {
							return operation.Final(errDeclined)
						}
						return nil
					}))
				if err == nil && rejects {
					return errRejected
				}
				return first(err, end(op))
			})
			want(t, operation.ErrParked)(s.do(d))
			rejects = false
			must(t, operation.Retry(t.Context(), s.pool, s.operationID()))
			if res, err := s.do(d, idem.WithWait(limit)); err != nil || !res.Rejected || res.Status != declined.Status {
				t.Errorf("%+v, %v", res, err)
			}
			if got := s.text(`select coalesce(string_agg(kind || ' ' || name || ' ' || outcome, ', ' order by seq), '') from idem.steps where kind not in ('end')`); got != "call charge done, undo charge done" {
				t.Errorf("recorded: %s", got)
			}
		})
	}
}

// The answer of a Once call is recorded, however the run ends after it.
func TestCall_AnswerIsRecordedHoweverTheRunEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(op *operation.Op, s *shop) error{
		"an error": func(*operation.Op, *shop) error { return errTimeout },
		"a panic":  func(*operation.Op, *shop) error { panic("for once") },
		"Goexit":   func(*operation.Op, *shop) error { runtime.Goexit(); return nil },
		"a name":   func(op *operation.Op, _ *shop) error { return localStep(op, "") },
		"a deferred constraint": func(op *operation.Op, _ *shop) error {
			return steps(func() error { return operation.Exec(op, "twice", executing(`insert into once values (1), (1)`)) }, op.Checkpoint)
		},
		"a serialization failure each time": func(op *operation.Op, _ *shop) error {
			return operation.Exec(op, "busy", executing(`do $$ begin raise exception using errcode = '40001'; end $$`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.exec(`create table once (id int unique deferrable initially deferred)`)
			fails, calls := true, 0
			d := define(func(op *operation.Op) error {
				_, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) { calls++; return "charged", nil })
				if err == nil && fails {
					err = end(op, s)
				}
				return err
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); err == nil || errors.Is(err, operation.ErrParked) {
					t.Errorf("got %v", err)
				}
			}()
			await(t, "the first run", done)
			s.wantCount(1, `select count(*) from idem.steps where kind = 'call' and outcome = 'done'`)
			fails = false
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit)); err != nil || calls != 1 {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}

// The Tx gets the error of a deferred constraint or trigger, and the function can take another
// branch. The SQLSTATE of the trigger would otherwise count as a lost acknowledgement.
func TestTx_ErrorOfADeferredConstraint(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]string{
		"constraint": `create table once (id int unique deferrable initially deferred)`,
		"trigger": `create table once (id int);
			create function refuse() returns trigger language plpgsql as $$ begin raise 'no' using errcode = 'XX000'; end $$;
			create constraint trigger refuse after insert on once deferrable initially deferred for each row when (new.id = 1) execute function refuse()`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.exec(table, pgx.QueryExecModeSimpleProtocol)
			calls := 0
			d := define(func(op *operation.Op) error {
				if _, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) { calls++; return "", nil }); err != nil {
					return err
				}
				if operation.Exec(op, "twice", executing(`insert into once values (1), (1)`)) != nil {
					return operation.Exec(op, "another way", executing(`insert into once values (2)`))
				}
				return nil
			})
			want(t, nil)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
			if n := s.count(`select count(*) from once where id = 2`); n != 1 || calls != 1 {
				t.Errorf("%d rows, %d calls", n, calls)
			}
		})
	}
}

// WithDeadline does not count the time of a Sleep, and does not apply to undos.
func TestWithDeadline_CountsCallsOnly(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls, refunds := 0, 0
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "first", operation.Keyed(time.Hour), s.bank.charge, operation.UndoCall(operation.Keyed(100*time.Hour), func(context.Context, string, string) error {
			if refunds++; refunds == 1 {
				return errTimeout
			}
			return nil
		}))
		if err := first(err, longSleep(op, "")); err != nil {
			return err
		}
		_, err = operation.Call(op, "second", operation.Keyed(100*time.Hour), func(context.Context, string) (int, error) {
			if calls++; calls == 1 {
				return 0, errTimeout
			}
			return 0, nil
		})
		return first(err, errRejected)
	}, operation.WithDeadline(time.Hour))
	s.waits(t, d, "k")
	s.elapse()
	s.exec(`update idem.operations set created_at = created_at - interval '20 hours'`)
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit)); err != nil || !res.Rejected || calls != 2 || refunds != 2 {
		t.Errorf("%+v, %v after %d calls and %d refunds", res, err, calls, refunds)
	}
}
