package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// start starts an operation in a transaction, which is committed if asked to.
func (s *shop) start(d *operation.Definition[string], key string, hash idem.Hash, commit bool) (id string, err error) {
	s.t.Helper()
	tx, err := s.pool.Begin(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := write("order " + key)(tx); err != nil {
		s.t.Fatal(err)
	}
	id, err = d.Start(context.Background(), tx, scope, key, hash, "book")
	if err == nil && commit {
		err = tx.Commit(context.Background())
	}
	return id, err
}

func TestStart_IsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	checkout := s.checkout()
	if _, err := s.start(checkout, "never", hashA, false); err != nil {
		t.Fatal(err)
	}
	id, err := s.start(checkout, "k", hashA, true)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.start(checkout, "k", hashA, true)
	if err != nil || again != id {
		t.Errorf("started again it is %s, %v; it was %s", again, err, id)
	}
	if _, err := s.start(checkout, "k", hashB, true); !errors.Is(err, idem.ErrMismatch) {
		t.Errorf("another request: %v", err)
	}
	entry, err := idem.Lookup(t.Context(), s.pool, scope, "k")
	if err != nil || entry.State != idem.StateProcessing || entry.ExecutionID != id {
		t.Errorf("%+v, %v", entry, err)
	}
	s.work(t, checkout)
	eventually(t, "the operation to end", func() bool {
		entry, err = idem.Lookup(t.Context(), s.pool, scope, "k")
		return err == nil && entry.State == idem.StateCompleted
	})
	res, err := checkout.Do(t.Context(), s.pool, scope, "k", hashA, "book")
	if err != nil || !res.Replayed || res.ExecutionID != id {
		t.Errorf("%+v, %v", res, err)
	}
	if after, err := s.start(checkout, "k", hashA, true); err != nil || after != id {
		t.Errorf("started after its end it is %s, %v", after, err)
	}
	if got, want := fmt.Sprint(s.did()), "[order k order k reserve book confirm book order k]"; got != want {
		t.Errorf("committed is %s, want %s", got, want)
	}
	if n := s.count(`select count(*) from idem.records where key = 'never'`); n != 0 {
		t.Error("what was rolled back is recorded")
	}
}

func TestStart_OfAHeldKeyIsInProgress(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	checkout := s.checkout()
	first, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Rollback(t.Context())
	if _, err := checkout.Start(t.Context(), first, scope, "k", hashA, "book"); err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		if _, err := checkout.Start(t.Context(), tx, scope, "k", hashA, "book"); !errors.Is(err, idem.ErrInProgress) {
			t.Errorf("a key that is held: %v", err)
		}
		_, err := write("goes on")(tx)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestWorker_ThousandDueAtOnceAreDoneOnce(t *testing.T) {
	t.Parallel()
	const many = 1000
	s := newShop(t, maxConns(8))
	d := operation.Define("many", func(op *operation.Op, n int) (idem.Response, error) {
		if _, err := operation.Tx(op, "do", write(fmt.Sprint(n))); err != nil {
			return idem.Response{}, err
		}
		return created, outsideStep(op, "call")
	})
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		for n := range many {
			if _, err := d.Start(t.Context(), tx, scope, fmt.Sprint("k", n), hashA, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.work(t, d)
	}
	other := shopOn(t, s.dsn, maxConns(4)) // as another process would be
	other.work(t, d)
	eventually(t, "all to end", func() bool {
		return s.count(`select count(*) from idem.operations where state = 'completed'`) == many
	})
	if n := s.count(`select count(*) from done`); n != many || s.count(`select count(distinct step) from done`) != many {
		t.Errorf("%d steps are committed, want %d", n, many)
	}
	if n := s.count(`select count(*) from idem.operations where epoch <> 2`); n != 0 {
		t.Errorf("%d operations were claimed more than once", n)
	}
}
