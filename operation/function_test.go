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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// define makes an operation without input.
func define(fn func(op *operation.Op) error) *operation.Definition[int] {
	return operation.Define("function", func(op *operation.Op, _ int) (idem.Response, error) { return created, fn(op) })
}

func TestDo_ErrorBeforeTheFirstCommit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	fail := errDeclined
	d := define(func(op *operation.Op) error { return errors.Join(localStep(op, "do"), fail) })
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, errDeclined) {
		t.Fatal(err)
	}
	if n := s.count(`select count(*) from done`) + s.count(`select count(*) from idem.records`) + s.count(`select count(*) from idem.operations`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	fail = nil
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashB, 0); err != nil {
		t.Error(err)
	}
}

// The error is no answer: the next call of the key resumes the operation.
func TestDo_ErrorBehindACommit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	fail := errDeclined
	d := define(func(op *operation.Op) error {
		if err := outsideStep(op, "call"); err != nil {
			return err
		}
		return errors.Join(localStep(op, "do"), fail)
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, errDeclined) {
		t.Fatal(err)
	}
	fail = nil
	res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
	if err != nil || res.Replayed {
		t.Fatal(res, err)
	}
	if did := fmt.Sprint(s.did()); did != "[do]" {
		t.Errorf("%s is committed", did)
	}
}

func TestTx_FailsAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var seen []string
	d := define(func(op *operation.Op) error {
		if err := localStep(op, "first"); err != nil {
			return err
		}
		_, err := operation.Tx(op, "second", func(tx pgx.Tx) (int, error) {
			if _, err := write("second")(tx); err != nil {
				return 0, err
			}
			_, err := tx.Exec(context.Background(), `select 1 / 0`)
			return 0, err
		})
		var pgErr *pgconn.PgError
		seen = append(seen, fmt.Sprint(errors.As(err, &pgErr) && pgErr.Code == "22012", errors.Is(err, errDeclined)))
		if err := localStep(op, "third"); err != nil {
			return err
		}
		return longSleep(op, "")
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"first", "third"}, s.did()); diff != "" {
		t.Errorf("(-want +committed):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"true false", "true false"}, seen); diff != "" {
		t.Errorf("(-want +seen):\n%s", diff)
	}
}

func TestDo_RetriesFromTheRecord(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string]bool{"before the first commit": false, "after it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			runs, fails := 0, 0
			d := define(func(op *operation.Op) error {
				runs++
				if calls {
					if err := outsideStep(op, "call"); err != nil {
						return err
					}
				}
				if err := localStep(op, "first"); err != nil {
					return err
				}
				_, err := operation.Tx(op, "second", func(tx pgx.Tx) (int, error) {
					if fails++; fails > 2 {
						_, err := write("second")(tx)
						return 0, err
					}
					_, err := tx.Exec(context.Background(), `do $$ begin raise exception sqlstate '40001'; end $$`)
					return 0, err
				})
				_ = err // a function that forgets errors has no effect either
				return localStep(op, "third")
			})
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
				t.Fatal(err)
			}
			if runs != 3 {
				t.Errorf("%d runs", runs)
			}
			if diff := cmp.Diff([]string{"first", "second", "third"}, s.did()); diff != "" {
				t.Errorf("(-want +committed):\n%s", diff)
			}
		})
	}
}

func TestDo_PanicReleasesTheOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	angry := true
	d := define(func(op *operation.Op) error {
		if err := outsideStep(op, "call"); err != nil {
			return err
		}
		_, err := operation.Tx(op, "do", func(tx pgx.Tx) (string, error) {
			if angry {
				panic("out of cheese")
			}
			return write("do")(tx)
		})
		return err
	})
	func() {
		defer func() {
			if p := recover(); p != "out of cheese" {
				t.Errorf("it panicked with %v", p)
			}
		}()
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
		t.Errorf("it returned %v", err)
	}()
	angry = false
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit)); err != nil {
		t.Fatal(err)
	}
	if did := fmt.Sprint(s.did()); did != "[do]" {
		t.Errorf("%s is committed", did)
	}
}

func TestWorker_OutlivesAPanic(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("checkout", func(op *operation.Op, in string) (idem.Response, error) {
		if err := localStep(op, in); err != nil || in == "angry" {
			panic("out of cheese")
		}
		return created, nil
	})
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		for _, in := range []string{"angry", "calm"} {
			if _, err := d.Start(t.Context(), tx, scope, in, hashA, in); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.work(t, d)
	eventually(t, "both to have been worked on", func() bool {
		return s.count(`select count(*) from idem.operations where state = 'completed'`) == 1 &&
			s.count(`select count(*) from idem.operations where state = 'running' and owner is null and attempts > 0`) == 1
	})
	if did := fmt.Sprint(s.did()); did != "[calm]" {
		t.Errorf("%s is committed", did)
	}
}

func TestOp_Misused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var kept *operation.Op
	d := define(func(op *operation.Op) error {
		kept = op
		_, err := operation.Tx(op, "outer", func(tx pgx.Tx) (int, error) {
			return 0, localStep(op, "inner")
		})
		if !errors.Is(err, operation.ErrMisused) {
			t.Errorf("a step inside of a step: %v", err)
		}
		return nil
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if err := localStep(kept, "late"); !errors.Is(err, operation.ErrMisused) {
		t.Errorf("a step after the end: %v", err)
	}
}

func TestTx_EndsItsTransaction(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{"commit": "commit", "commit and begin": "commit; begin"} {
		for _, test := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
			calls, checks := test[0], test[1]
			t.Run(fmt.Sprint(name, ", after a call: ", calls, ", before a checkpoint: ", checks), func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				d := define(func(op *operation.Op) error {
					if calls {
						if err := outsideStep(op, "call"); err != nil {
							return err
						}
					}
					_, err := operation.Tx(op, "do", func(tx pgx.Tx) (int, error) {
						_, err := tx.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol)
						return 0, err
					})
					if checks && err == nil {
						return op.Checkpoint()
					}
					return err
				})
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
				var parked *operation.ParkedError
				if errors.As(err, &parked) {
					err = parked.Cause
				}
				if !errors.Is(err, idem.ErrTxEnded) || (parked != nil) != calls {
					t.Errorf("parked: %v, %v", parked, err)
				}
			})
		}
	}
}

// Neither two steps nor two operations share a key, also where a loop repeats a name.
func TestCall_KeysAreUnique(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		for range 3 {
			for _, name := range []string{"a", "b"} {
				if _, err := operation.Call(op, name, operation.Keyed(time.Hour), s.bank.charge); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for _, key := range []string{"k1", "k2"} {
		if _, err := d.Do(t.Context(), s.pool, scope, key, hashA, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n, asked := s.bank.keys(); n != 12 || asked != 12 {
		t.Errorf("%d keys in %d requests", n, asked)
	}
}

// Neighboring Tx share one transaction, however many they are.
func TestTx_ShareATransaction(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(op *operation.Op) error
		done int
	}{
		"they end well":     {func(*operation.Op) error { return nil }, 100},
		"they are rejected": {func(*operation.Op) error { return idem.Reject(declined) }, 0},
		"an error is final": {func(*operation.Op) error { return operation.Final(errors.New("no")) }, 0},
		"one has an undo, and they are rejected": {func(op *operation.Op) error {
			_, err := operation.Tx(op, "one more", write("one more"), undoBy[string]("undo"))
			return errors.Join(err, idem.Reject(declined))
		}, 0},
		"one fails, and the function goes on": {func(op *operation.Op) error {
			_, err := operation.Tx(op, "refused", func(pgx.Tx) (int, error) { return 0, errors.New("refused") })
			if err == nil {
				return errors.New("the step has not failed")
			}
			return localStep(op, "one")
		}, 101},
		"a call follows": {func(op *operation.Op) error { return errors.Join(outsideStep(op, "call"), idem.Reject(declined)) }, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := define(func(op *operation.Op) error {
				for range 100 {
					if err := localStep(op, "one"); err != nil {
						return err
					}
				}
				return test.end(op)
			})
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			if n := s.count(`select count(*) from done`); n != test.done {
				t.Errorf("%d steps are committed, %v", n, err)
			}
		})
	}
}

func TestDo_EveryModeAndIsolation(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		for _, level := range []pgx.TxIsoLevel{"", pgx.RepeatableRead, pgx.Serializable} {
			t.Run(fmt.Sprint(mode, " ", level), func(t *testing.T) {
				t.Parallel()
				s := newShop(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
				opts := []idem.Option{idem.WithTxOptions(pgx.TxOptions{IsoLevel: level}), idem.WithWait(0)}
				d := s.trip(func(op *operation.Op) (idem.Response, error) {
					if err := longSleep(op, `it's "asleep"`); err != nil {
						return idem.Response{}, err
					}
					yes, err := operation.Await[string](op, `it's "signalled"`, time.Hour)
					if err != nil || yes != `it's {"yes"}` {
						return idem.Response{}, fmt.Errorf("signalled %q: %w", yes, err)
					}
					return idem.Response{}, idem.Reject(declined)
				})
				if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, `it's`, opts...); !errors.Is(err, idem.ErrInProgress) {
					t.Fatal(err)
				}
				id := s.text(`select id::text from idem.operations`)
				if err := operation.Signal(t.Context(), s.pool, id, `it's "signalled"`, `it's {"yes"}`); err != nil {
					t.Fatal(err)
				}
				s.elapse()
				res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, `it's`, opts...)
				if err != nil || !res.Rejected {
					t.Fatal(res, err)
				}
				if diff := cmp.Diff("flight hotel cancel hotel refund cancel flight", strings.Join(s.did(), " ")); diff != "" {
					t.Errorf("(-want +committed):\n%s", diff)
				}
			})
		}
	}
}

// The TTL counts from the end of the operation.
func TestDo_KeyDoesNotExpireWhileRunning(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error { return errors.Join(localStep(op, "do"), longSleep(op, "")) })
	ttl := idem.WithTTL(time.Minute)
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, ttl, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	if n := s.count(`select count(*) from idem.records where expires_at > clock_timestamp() + interval '100 years'`); n != 1 {
		t.Error("the key expires while its operation runs")
	}
	s.elapse()
	s.work(t, d)
	eventually(t, "the operation to end", func() bool { return s.count(`select count(*) from idem.records where state = 'completed'`) == 1 })
	if n := s.count(`select count(*) from idem.records where expires_at = completed_at + interval '1 minute'`); n != 1 {
		t.Error("the TTL of the caller does not count from the end")
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.records set expires_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashB, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) { // takes the record over
		t.Fatal(err)
	}
	if n := s.count(`select count(*) from idem.operations`); n != 2 {
		t.Errorf("%d operations", n)
	}
}

func TestTx_FailsUnderAnExpiredKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		_, err := operation.Tx(op, "fails", func(tx pgx.Tx) (int, error) { return 0, errDeclined })
		if !errors.Is(err, errDeclined) {
			t.Error(err)
		}
		return localStep(op, "do")
	})
	for n := range 2 {
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
			t.Fatal(err)
		}
		if did := s.did(); len(did) != n+1 {
			t.Errorf("%v is committed", did)
		}
		if _, err := s.pool.Exec(t.Context(), `update idem.records set expires_at = clock_timestamp()`); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDo_ChecksNamesAndInputs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, name := range []string{"", "a#2", "a\x00", strings.Repeat("x", 201), "\xff"} {
		d := define(func(op *operation.Op) error { return localStep(op, name) })
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrInvalidName) {
			t.Errorf("a step %q: %v", name, err)
		}
		bad := operation.Define(name, func(*operation.Op, int) (idem.Response, error) { return created, nil })
		if _, err := bad.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrInvalidName) {
			t.Errorf("an operation %q: %v", name, err)
		}
	}
	if _, err := s.checkout().Do(t.Context(), s.pool, scope, "k", hashA, strings.Repeat("x", 2<<20)); !errors.Is(err, operation.ErrValueTooLarge) {
		t.Errorf("an input that is too large: %v", err)
	}
	if n := s.count(`select count(*) from idem.records`); n != 0 {
		t.Error("something is recorded")
	}
}
