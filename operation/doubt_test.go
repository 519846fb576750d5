package operation_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// inDoubt leaves an operation behind whose call "charge" was begun, and has no answer.
func inDoubt(t *testing.T, s *shop, safety operation.Safety) (id string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "reserve"); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "charge", safety, func(context.Context, string) (string, error) {
			leave()
			return "", errTimeout
		})
		return created, err
	})
	if _, err := d.Do(ctx, s.pool, scope, "k", hashA, 0); err == nil {
		t.Fatal("it has ended")
	}
	return s.text(`select id::text from idem.operations`)
}

// The function may change while a call is in doubt, and the call is neither made twice, nor under another key, nor forgotten.
func TestCallInDoubtIsOnRecordWhateverTheCodeAsksForNext(t *testing.T) {
	t.Parallel()
	charge := func(op *operation.Op, s *shop, name string) error {
		_, err := operation.Call(op, name, operation.Keyed(time.Hour), s.bank.charge)
		return err
	}
	for name, goOn := range map[string]func(op *operation.Op, s *shop) (idem.Response, error){
		"a Tx put in front": func(op *operation.Op, s *shop) (idem.Response, error) {
			return created, errors.Join(localStep(op, "check"), charge(op, s, "charge"))
		},
		"renamed": func(op *operation.Op, s *shop) (idem.Response, error) { return created, charge(op, s, "pay") },
		"no longer asked for": func(*operation.Op, *shop) (idem.Response, error) {
			return created, nil
		},
		"no longer asked for, and rejected": func(*operation.Op, *shop) (idem.Response, error) {
			return idem.Response{}, idem.Reject(declined)
		},
		"no longer asked for, and Final": func(*operation.Op, *shop) (idem.Response, error) {
			return idem.Response{}, operation.Final(errDeclined)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			inDoubt(t, s, operation.Keyed(time.Hour))
			d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
				if err := localStep(op, "reserve"); err != nil {
					return idem.Response{}, err
				}
				return goOn(op, s)
			})
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			var parked *operation.ParkedError
			if !errors.As(err, &parked) || !strings.Contains(parked.Reason, `"charge"`) || parked.Step != "charge" {
				t.Errorf("got %v", err)
			}
			if n, _ := s.bank.keys(); n != 0 {
				t.Errorf("%d charges", n)
			}
		})
	}
}

func TestChangedIsFalseInFrontOfACallInDoubt(t *testing.T) {
	t.Parallel()
	for name, safety := range map[string]operation.Safety{"Keyed": operation.Keyed(time.Hour), "Once": operation.Once} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			inDoubt(t, s, safety)
			calls := 0
			d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
				if err := localStep(op, "reserve"); err != nil {
					return idem.Response{}, err
				}
				if op.Changed("check") {
					t.Error("it has changed for an operation that has come past it")
				}
				_, err := operation.Call(op, "charge", safety, func(context.Context, string) (string, error) { calls++; return "", nil })
				return created, err
			})
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			if once := name == "Once"; once != errors.Is(err, operation.ErrParked) || once != (calls == 0) {
				t.Errorf("%v after %d calls", err, calls)
			}
		})
	}
}

// A person says that the call has not happened: its place is free for other code.
func TestCallThatHasNotHappenedFreesItsPlace(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := inDoubt(t, s, operation.Once)
	if err := operation.Resolve(t.Context(), s.pool, id, operation.NotHappened); err != nil {
		t.Fatal(err)
	}
	d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
		return created, errors.Join(localStep(op, "reserve"), localStep(op, "free"))
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
}

// An undo has parked, and the charge before it is on record.
func TestFindingNeverOverwritesWhatIsOnRecord(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("stuck", func(op *operation.Op, _ int) (idem.Response, error) {
		value, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge)
		if err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "refund", func(pgx.Tx) error { return errDeclined }); err != nil {
			return idem.Response{}, err
		}
		if err := op.Checkpoint(); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(idem.Response{Status: 402, Body: []byte(value)})
	})
	_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
	var parked *operation.ParkedError
	if !errors.As(err, &parked) || parked.Step != "refund" {
		t.Fatal(err)
	}
	before := s.text(`select string_agg(encode(value, 'hex') || outcome, ' ' order by seq) from idem.steps where kind = 'call'`)
	for _, finding := range []operation.Finding{operation.Happened("other"), operation.NotHappened} {
		if err := operation.Resolve(t.Context(), s.pool, parked.OperationID, finding); !errors.Is(err, operation.ErrNotParked) {
			t.Error(err)
		}
	}
	if after := s.text(`select string_agg(encode(value, 'hex') || outcome, ' ' order by seq) from idem.steps where kind = 'call'`); after != before {
		t.Errorf("%s became %s", before, after)
	}
}

// Whatever comes behind a call that is Once, its answer is known.
func TestWhatACallHasReturnedIsKeptHoweverTheRunEnds(t *testing.T) {
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
			if _, err := s.pool.Exec(t.Context(), `create table once (id int unique deferrable initially deferred)`); err != nil {
				t.Fatal(err)
			}
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
			if n := s.count(`select count(*) from idem.steps where kind = 'call' and outcome = 'done'`); n != 1 {
				t.Error("what the call has returned is not on record")
			}
			fails = false
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil || calls != 1 {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}

// The function is given the error of a deferred constraint, and may go another way.
func TestErrorOfADeferredConstraintGoesToTheFunction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := s.pool.Exec(t.Context(), `create table once (id int unique deferrable initially deferred)`); err != nil {
		t.Fatal(err)
	}
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
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Error(err)
	}
	if n := s.count(`select count(*) from once where id = 2`); n != 1 || calls != 1 {
		t.Errorf("%d rows, %d calls", n, calls)
	}
}

// The error of a trigger that is deferred is the program's own, whatever its SQLSTATE: the server lacks nothing that the library needs, and has
// an answer to the COMMIT.
func TestErrorOfADeferredTriggerGoesToTheFunctionWhateverItsState(t *testing.T) {
	t.Parallel()
	for state, body := range map[string]string{
		"42883": `perform no_such_function()`,
		"XX000": `raise 'no' using errcode = 'XX000'`,
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			if _, err := s.pool.Exec(t.Context(), `create table watched (id int);
				create function refuse() returns trigger language plpgsql as $$ begin `+body+`; return null; end $$;
				create constraint trigger refuse after insert on watched deferrable initially deferred for each row execute function refuse()`); err != nil {
				t.Fatal(err)
			}
			var refused error
			d := operation.Define("deferred", func(op *operation.Op, _ int) (idem.Response, error) {
				if _, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (string, error) { return "", nil }); err != nil {
					return idem.Response{}, err
				}
				refused = operation.Exec(op, "insert", func(tx pgx.Tx) error {
					_, err := tx.Exec(context.Background(), `insert into watched values (1)`)
					return err
				})
				return created, nil
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
				t.Error(err)
			}
			if refused == nil || !strings.Contains(refused.Error(), state) || errors.Is(refused, idem.ErrUnsupported) ||
				strings.Contains(refused.Error(), idem.ErrUnsupported.Error()) {
				t.Errorf("the function was given %v", refused)
			}
		})
	}
}

// Either all that an undo takes back is committed, or nothing of it.
func TestUndoIsForAllOfItsStepsOrForNone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		steps func(op *operation.Op, s *shop, add func(string) error) error
	}{
		{"33 steps", func(op *operation.Op, s *shop, add func(string) error) error {
			for i := range 33 {
				if err := add(fmt.Sprint("add ", i)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"a call between two", func(op *operation.Op, s *shop, add func(string) error) error {
			return errors.Join(add("first"), outsideStep(op, "call"), add("second"))
		}},
	} {
		for _, pause := range []bool{false, true} {
			t.Run(fmt.Sprint(test.name, pause), func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				n := 0
				d := operation.Define("stock", func(op *operation.Op, _ int) (idem.Response, error) {
					n = 0
					add := func(name string) error {
						n++
						_, err := operation.Tx(op, name, write("add"))
						return err
					}
					if err := test.steps(op, s, add); err != nil {
						return idem.Response{}, err
					}
					all := n
					err := operation.UndoTx(op, "take all", func(tx pgx.Tx) error {
						_, err := tx.Exec(context.Background(), `insert into done (step) select 'take' from generate_series(1, $1)`, all)
						return err
					})
					if err != nil {
						return idem.Response{}, err
					}
					if pause {
						if err := op.Checkpoint(); err != nil {
							return idem.Response{}, err
						}
					}
					return idem.Response{}, idem.Reject(declined)
				})
				if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || !res.Rejected {
					t.Fatal(res, err)
				}
				if added, taken := s.count(`select count(*) from done where step = 'add'`), s.count(`select count(*) from done where step = 'take'`); added != taken {
					t.Errorf("%d added, and %d taken back", added, taken)
				}
			})
		}
	}
}

func TestUndoRegisteredBeforeItsCallIsRunIfTheCallHasHappened(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(op *operation.Op) error{
		"behind nothing": func(*operation.Op) error { return nil },
		"behind Changed": func(op *operation.Op) error { op.Changed("new"); return nil },
		"behind a failed step": func(op *operation.Op) error {
			_, _ = operation.Tx(op, "failed", func(pgx.Tx) (int, error) { return 0, errDeclined })
			return nil
		},
	} {
		for _, declines := range []bool{false, true} {
			t.Run(fmt.Sprint(name, declines), func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				refunds := 0
				d := operation.Define("early", func(op *operation.Op, _ int) (idem.Response, error) {
					if err := before(op); err != nil {
						return idem.Response{}, err
					}
					err := operation.Undo(op, "refund", operation.Keyed(time.Hour), func(context.Context, string) error { refunds++; return nil })
					if err != nil {
						return idem.Response{}, err
					}
					_, err = operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
						if declines {
							return "", operation.Final(errDeclined)
						}
						return s.bank.charge(ctx, key)
					})
					if err != nil && !declines {
						return idem.Response{}, err
					}
					return idem.Response{}, idem.Reject(declined)
				})
				if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || !res.Rejected {
					t.Fatal(res, err)
				}
				if want := map[bool]int{false: 1, true: 0}[declines]; refunds != want {
					t.Errorf("%d refunds, want %d", refunds, want)
				}
			})
		}
	}
}

// Many undos need more than one transaction. A run that is cut off between them leaves no place without a row.
func TestManyUndosLeaveNoHoleWhenTheyAreCutOff(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	fails := true
	d := operation.Define("many", func(op *operation.Op, _ int) (idem.Response, error) {
		for i := range 40 {
			if err := localStep(op, fmt.Sprint("step ", i)); err != nil {
				return idem.Response{}, err
			}
			err := operation.UndoTx(op, fmt.Sprint("undo ", i), func(tx pgx.Tx) error {
				if fails && i == 3 {
					return errTimeout
				}
				return writeUndo(fmt.Sprint("undo ", i))(tx)
			})
			if err != nil {
				return idem.Response{}, err
			}
		}
		if err := outsideStep(op, "last"); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(declined)
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	if holes := s.count(`select max(seq) - count(*) from idem.steps`); holes != 0 {
		t.Errorf("%d places have no row", holes)
	}
	fails = false
	if err := operation.Retry(t.Context(), s.pool, s.text(`select id::text from idem.operations`)); err != nil {
		t.Fatal(err)
	}
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil || !res.Rejected {
		t.Fatal(res, err)
	}
	if n := s.count(`select count(distinct step) from done where step like 'undo%'`); n != 40 || s.count(`select count(*) from done where step like 'undo%'`) != 40 {
		t.Errorf("%d undos", n)
	}
}

// A cancel during a call waits for its answer, keeps it, and goes on to the undo that takes it back, through what is in Postgres.
func TestCancelDuringACallGoesOnToItsUndo(t *testing.T) {
	t.Parallel()
	for name, safety := range map[string]operation.Safety{"Keyed": operation.Keyed(time.Hour), "Once": operation.Once} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			calls, refunds := 0, 0
			d := operation.Define("cancelled", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Call(op, "charge", safety, func(ctx context.Context, _ string) (string, error) {
					calls++
					return "", operation.Cancel(ctx, s.pool, op.ID())
				})
				if err != nil {
					return idem.Response{}, err
				}
				if err := localStep(op, "paid"); err != nil {
					return idem.Response{}, err
				}
				err = operation.Undo(op, "refund", operation.Keyed(time.Hour), func(context.Context, string) error { refunds++; return nil })
				if err != nil {
					return idem.Response{}, err
				}
				return created, outsideStep(op, "ship")
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrCancelled) || calls != 1 || refunds != 1 {
				t.Errorf("%v after %d calls and %d refunds", err, calls, refunds)
			}
		})
	}
}

// Sleep and the undos do not count.
func TestDeadlineIsForCallsAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls, refunds := 0, 0
	d := operation.Define("bounded", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := outsideStep(op, "first"); err != nil {
			return idem.Response{}, err
		}
		err := operation.Undo(op, "refund", operation.Keyed(100*time.Hour), func(context.Context, string) error {
			if refunds++; refunds == 1 {
				return errTimeout
			}
			return nil
		})
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
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set created_at = created_at - interval '20 hours'`); err != nil {
		t.Fatal(err)
	}
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil || !res.Rejected || calls != 2 || refunds != 2 {
		t.Errorf("%+v, %v after %d calls and %d refunds", res, err, calls, refunds)
	}
}

func TestAttemptsAreCountedAlsoWhereCallersLeave(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	leave := func() {}
	c := newCalling(operation.Keyed(time.Hour), func(int, string) (string, error) { leave(); return "", errTimeout }, operation.Attempts(3))
	for range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		leave = cancel
		if _, err := c.Do(ctx, s.pool, scope, "k", hashA, 0); err == nil {
			t.Fatal("it has ended")
		}
		cancel()
	}
	parks(t, s, c, "3 attempts")
	if len(c.keys) != 3 {
		t.Errorf("%d attempts", len(c.keys))
	}
}

func TestChangedThatIsMisusedEndsTheRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ask  func(op *operation.Op)
		want error
	}{
		"a name": {func(op *operation.Op) { op.Changed("") }, operation.ErrInvalidName},
		"inside of a step": {func(op *operation.Op) {
			_, _ = operation.Tx(op, "step", func(pgx.Tx) (bool, error) { return op.Changed("new"), nil })
		}, operation.ErrMisused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := operation.Define("misused", func(op *operation.Op, _ int) (idem.Response, error) { test.ask(op); return created, nil })
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
