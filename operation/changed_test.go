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
	d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
		for _, step := range steps {
			if err := step(op, "step"); err != nil {
				return idem.Response{}, err
			}
		}
		return created, nil
	})
	want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)))
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
	d := operation.Define("evolving", func(*operation.Op, string) (idem.Response, error) { return created, nil })
	want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, "a text"))
}

func TestChanged_FalseBehindRecordedSteps(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asleep(t, s, named(localStep, "reserve"), named(outsideStep, "charge"), longSleep)
	var changed []bool
	d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "reserve"); err != nil {
			return idem.Response{}, err
		}
		first := op.Changed("fraud check")
		if first {
			if err := localStep(op, "check"); err != nil {
				return idem.Response{}, err
			}
		}
		if err := outsideStep(op, "charge"); err != nil {
			return idem.Response{}, err
		}
		if err := longSleep(op, ""); err != nil {
			return idem.Response{}, err
		}
		changed = append(changed, first, op.Changed("after the pause"))
		return created, nil
	})
	want(t, nil)(d.Do(t.Context(), s.pool, scope, "k", hashA, 0))
	want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "new", hashA, 0, idem.WithWait(0)))
	s.elapse()
	want(t, nil)(d.Do(t.Context(), s.pool, scope, "new", hashA, 0))
	if len(changed) != 4 || changed[0] || !changed[1] || !changed[2] || !changed[3] {
		t.Errorf("Changed answered %v", changed)
	}
}

// The first run rejects, and its undo fails. Later runs end in that rejection, whatever the
// function returns.
func TestChanged_RecordedRejectionCounts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(op *operation.Op) (idem.Response, error){
		"another step": func(op *operation.Op) (idem.Response, error) { return created, localStep(op, "another") },
		"another step, whose error is dropped": func(op *operation.Op) (idem.Response, error) {
			_ = localStep(op, "another")
			return created, nil
		},
		"an answer": func(*operation.Op) (idem.Response, error) { return created, nil },
		"an error":  func(*operation.Op) (idem.Response, error) { return created, errTimeout },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			first := true
			d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
					operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error {
						if first {
							return operation.Final(errDeclined)
						}
						return nil
					}))
				switch {
				case err != nil:
					return idem.Response{}, err
				case first:
					return idem.Response{}, idem.Reject(declined)
				}
				return end(op)
			})
			call := func() (idem.Result, error) {
				return d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit))
			}
			want(t, operation.ErrParked)(call())
			first = false
			must(t, operation.Retry(t.Context(), s.pool, s.operationID()))
			if res, err := call(); err != nil || !res.Rejected || res.Status != declined.Status {
				t.Errorf("%+v, %v", res, err)
			}
			if got := s.text(`select coalesce(string_agg(kind || ' ' || name || ' ' || outcome, ', ' order by seq), '') from idem.steps where kind not in ('end')`); got != "call charge done, undo charge done" {
				t.Errorf("recorded: %s", got)
			}
		})
	}
}

// The operation is parked at an UndoTx. Resolve does not change the recorded call that it undoes.
func TestResolve_NoCallInDoubt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("stuck", func(op *operation.Op, _ int) (idem.Response, error) {
		value, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge, operation.UndoTx(func(pgx.Tx, string) error { return errDeclined }))
		if err != nil {
			return idem.Response{}, err
		}
		if err := op.Checkpoint(); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(idem.Response{Status: 402, Body: []byte(value)})
	})
	_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
	var parked *operation.ParkedError
	if !errors.As(err, &parked) || parked.Step != "charge" || parked.Reason != operation.ReasonUndoFailed {
		t.Fatal(err)
	}
	if status, err := operation.Show(t.Context(), s.pool, parked.OperationID); err != nil || status.Step != "charge" || status.Kind != "" { // there is no key to ask for
		t.Errorf("%+v, %v", status, err)
	}
	before := s.text(`select string_agg(encode(value, 'hex') || outcome, ' ' order by seq) from idem.steps where kind = 'call'`)
	for _, finding := range []operation.Finding{operation.Happened("other"), operation.NotHappened} {
		want(t, operation.ErrNotParked)(nil, operation.Resolve(t.Context(), s.pool, parked.OperationID, finding))
	}
	if after := s.text(`select string_agg(encode(value, 'hex') || outcome, ' ' order by seq) from idem.steps where kind = 'call'`); after != before {
		t.Errorf("%s became %s", before, after)
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
			_, err := operation.Tx(op, "twice", func(tx pgx.Tx) (int, error) {
				_, err := tx.Exec(context.Background(), `insert into once values (1), (1)`)
				return 0, err
			})
			if err != nil {
				return err
			}
			return op.Checkpoint()
		},
		"a serialization failure each time": func(op *operation.Op, _ *shop) error {
			_, err := operation.Tx(op, "busy", func(tx pgx.Tx) (int, error) {
				_, err := tx.Exec(context.Background(), `do $$ begin raise exception using errcode = '40001'; end $$`)
				return 0, err
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.exec(`create table once (id int unique deferrable initially deferred)`)
			fails, calls := true, 0
			d := operation.Define("kept", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) { calls++; return "charged", nil })
				if err == nil && fails {
					err = end(op, s)
				}
				return created, err
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { _ = recover() }()
				if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err == nil || errors.Is(err, operation.ErrParked) {
					t.Errorf("got %v", err)
				}
			}()
			await(t, "the first run", done)
			s.wantCount(1, `select count(*) from idem.steps where kind = 'call' and outcome = 'done'`)
			fails = false
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil || calls != 1 {
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
			insert := func(values string) func(pgx.Tx) (int, error) {
				return func(tx pgx.Tx) (int, error) {
					_, err := tx.Exec(context.Background(), `insert into once values `+values)
					return 0, err
				}
			}
			calls := 0
			d := operation.Define("deferred", func(op *operation.Op, _ int) (idem.Response, error) {
				if _, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) { calls++; return "", nil }); err != nil {
					return idem.Response{}, err
				}
				if _, err := operation.Tx(op, "twice", insert("(1), (1)")); err != nil {
					if _, err := operation.Tx(op, "another way", insert("(2)")); err != nil {
						return idem.Response{}, err
					}
					return created, nil
				}
				return created, nil
			})
			want(t, nil)(d.Do(t.Context(), s.pool, scope, "k", hashA, 0))
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
	d := operation.Define("bounded", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "first", operation.Keyed(time.Hour), s.bank.charge, operation.UndoCall(operation.Keyed(100*time.Hour), func(context.Context, string, string) error {
			if refunds++; refunds == 1 {
				return errTimeout
			}
			return nil
		}))
		if err != nil {
			return idem.Response{}, err
		}
		if err := operation.Sleep(op, "pause", 20*time.Hour); err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Call(op, "second", operation.Keyed(100*time.Hour), func(context.Context, string) (int, error) {
			if calls++; calls == 1 {
				return 0, errTimeout
			}
			return 0, nil
		})
		if err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(declined)
	}, operation.WithDeadline(time.Hour))
	want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)))
	s.elapse()
	s.exec(`update idem.operations set created_at = created_at - interval '20 hours'`)
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil || !res.Rejected || calls != 2 || refunds != 2 {
		t.Errorf("%+v, %v after %d calls and %d refunds", res, err, calls, refunds)
	}
}
