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

func TestDo_ExecutesOnceAndReplays(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	checkout := s.checkout()
	first, err := checkout.Do(t.Context(), s.pool, scope, "k", hashA, "book")
	if err != nil || first.Replayed || first.Status != 201 {
		t.Fatal(first, err)
	}
	second, err := checkout.Do(t.Context(), s.pool, scope, "k", hashA, "book")
	if err != nil || !second.Replayed {
		t.Fatal(second, err)
	}
	first.Replayed = true
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("(-first +second):\n%s", diff)
	}
	s.wantOnce("book")
	entry, err := idem.Lookup(t.Context(), s.pool, scope, "k")
	if err != nil || entry.State != idem.StateCompleted || entry.ExecutionID != first.ExecutionID {
		t.Error(entry, err)
	}
}

func TestDo_ErrorBeforeTheFirstCommit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	fail := errDeclined
	d := define(func(op *operation.Op) error { return errors.Join(localStep(op, "do"), fail) })
	want(t, errDeclined)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantCount(0, `select (select count(*) from done) + (select count(*) from idem.records) + (select count(*) from idem.operations)`)
	fail = nil
	want(t, nil)(d.Do(t.Context(), s.pool, scope, "k", hashB, ""))
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
					_ = outsideStep(op, "call")
				}
				_ = localStep(op, "first")
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
			want(t, nil)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
			if runs != 3 {
				t.Errorf("%d runs", runs)
			}
			s.wantDid("first", "second", "third")
		})
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
	s.startAll(d, "angry", "calm")
	s.work(t, d)
	eventually(t, "both to have been worked on", func() bool {
		return s.count(`select count(*) from idem.operations where state = 'completed'`) == 1 &&
			s.count(`select count(*) from idem.operations where state = 'running' and owner is null and attempts > 0`) == 1
	})
	s.wantDid("calm")
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
	want(t, nil)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	if err := localStep(kept, "late"); !errors.Is(err, operation.ErrMisused) {
		t.Errorf("a step after the end: %v", err)
	}
}

// Neither two steps nor two operations share a key, also where a loop repeats a name.
func TestCall_KeysAreUnique(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) (err error) {
		for _, name := range []string{"a", "b", "a", "b", "a", "b"} {
			_, failed := operation.Call(op, name, operation.Keyed(time.Hour), s.bank.charge)
			err = first(err, failed)
		}
		return err
	})
	for _, key := range []string{"k1", "k2"} {
		want(t, nil)(d.Do(t.Context(), s.pool, scope, key, hashA, ""))
	}
	if n, asked := s.bank.keys(); n != 12 || asked != 12 {
		t.Errorf("%d keys in %d requests", n, asked)
	}
}

func TestDo_EveryModeAndIsolation(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		level := map[pgx.QueryExecMode]pgx.TxIsoLevel{pgx.QueryExecModeExec: pgx.RepeatableRead, pgx.QueryExecModeSimpleProtocol: pgx.Serializable}[mode]
		t.Run(fmt.Sprint(mode, " ", level), func(t *testing.T) {
			t.Parallel()
			s := newShop(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			opts := []idem.Option{idem.WithTxOptions(pgx.TxOptions{IsoLevel: level}), idem.WithWait(0)}
			d := s.trip(func(op *operation.Op) (idem.Response, error) {
				slept := longSleep(op, `it's "asleep"`)
				yes, err := operation.Await[string](op, `it's "signalled"`, time.Hour)
				if err = first(slept, err); err != nil || yes != `it's {"yes"}` {
					return idem.Response{}, fmt.Errorf("signalled %q: %w", yes, err)
				}
				return idem.Response{}, idem.Reject(declined)
			})
			want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "k", hashA, `it's`, opts...))
			id := s.operationID()
			must(t, operation.Signal(t.Context(), s.pool, id, `it's "signalled"`, `it's {"yes"}`))
			s.elapse()
			res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, `it's`, opts...)
			if err != nil || !res.Rejected {
				t.Fatal(res, err)
			}
			s.wantDid("flight hotel cancel hotel refund cancel flight")
		})
	}
}

// The TTL counts from the end of the operation.
func TestDo_KeyDoesNotExpireWhileRunning(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error { return errors.Join(localStep(op, "do"), longSleep(op, "")) })
	ttl := idem.WithTTL(time.Minute)
	want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "k", hashA, "", ttl, idem.WithWait(0)))
	s.wantCount(1, `select count(*) from idem.records where expires_at > clock_timestamp() + interval '100 years'`)
	s.elapse()
	s.work(t, d)
	eventually(t, "the operation to end", func() bool { return s.count(`select count(*) from idem.records where state = 'completed'`) == 1 })
	s.wantCount(1, `select count(*) from idem.records where expires_at = completed_at + interval '1 minute'`)
	s.exec(`update idem.records set expires_at = clock_timestamp()`)
	want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "k", hashB, "", idem.WithWait(0))) // takes the record over
	s.wantCount(2, `select count(*) from idem.operations`)
}

func TestDo_ChecksNamesAndInputs(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, name := range []string{"", "a#2", "a\x00", strings.Repeat("x", 201), "\xff"} {
		d := define(func(op *operation.Op) error { return localStep(op, name) })
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, operation.ErrInvalidName) {
			t.Errorf("a step %q: %v", name, err)
		}
		bad := operation.Define(name, func(*operation.Op, string) (idem.Response, error) { return created, nil })
		if _, err := bad.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, operation.ErrInvalidName) {
			t.Errorf("an operation %q: %v", name, err)
		}
	}
	if _, err := s.checkout().Do(t.Context(), s.pool, scope, "k", hashA, strings.Repeat("x", 2<<20)); !errors.Is(err, operation.ErrValueTooLarge) {
		t.Errorf("an input that is too large: %v", err)
	}
	s.wantCount(0, `select count(*) from idem.records`)
}
