package fleet_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
)

// A transaction with a snapshot from before the move does not see that the tenant has left. It
// notices when it locks the row of the tenant.
func TestOldHome_RefusesAtEachIsolationLevelAndInAnOldSnapshot(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tx, err := w.west.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context()) //nolint:errcheck
			if _, err := tx.Exec(t.Context(), "select count(*) from orders"); err != nil {
				t.Fatal(err)
			}
			w.move(nil)
			if _, err = idem.DoTx(t.Context(), tx, scope, "k", hash("k"), insert(t.Context())); err == nil {
				err = tx.Commit(t.Context())
			}
			if err == nil {
				t.Error("the old home has committed")
			}
			isolation := idem.WithTxOptions(pgx.TxOptions{IsoLevel: level})
			if _, err := do(t, w.west, "k", isolation); fleet.Away(err) == nil || fleet.Away(err).Home != "east" {
				t.Errorf("the old home returned %v", err)
			}
			nothing := func(pgx.Tx) (idem.Response, error) { return idem.Response{Status: 204}, nil }
			if _, err := idem.Do(t.Context(), w.west.Pool, scope, "claim", hash("k"), nothing, isolation); fleet.Away(err) == nil {
				t.Errorf("a function without writes: the old home returned %v", err)
			}
			if _, err := do(t, w.east, "k", isolation); err != nil {
				t.Errorf("the new home returned %v", err)
			}
			if n := number(t, w.west, "select count(*) from orders"); n != 0 {
				t.Errorf("the old home has %d orders", n)
			}
		})
	}
}

func TestOldHome_RefusesWritesWithoutAClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pause := operation.Define("pause", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Await[int](op, "go", time.Hour)
		return idem.Response{Status: 200}, err
	})
	var id string
	err := pgx.BeginFunc(t.Context(), w.west.Pool, func(tx pgx.Tx) error {
		var err error
		id, err = pause.Start(t.Context(), tx, scope, "p", hash("p"), 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	w.move(func(s fleet.Stage) {
		if s != fleet.Arrived { // the old home still has the rows
			return
		}
		defer close(left)
		for what, write := range map[string]func() error{
			"a row of the service": func() error {
				_, err := w.west.Pool.Exec(t.Context(), "insert into customers (tenant, name, orders) values ($1, 'c', 0)", tenant)
				return err
			},
			"an incoming message": func() error {
				_, err := inbox.Handle(t.Context(), w.west.Pool, tenant+"/billing", inbox.Message{Source: "s", ID: "1"}, func(pgx.Tx) error { return nil })
				return err
			},
			"a signal": func() error { return operation.Signal(t.Context(), w.west.Pool, id, "go", 1) },
		} {
			if err := write(); fleet.Away(err) == nil {
				t.Errorf("%s: the old home returned %v", what, err)
			}
		}
	})
	<-left
	if err := operation.Signal(t.Context(), w.east.Pool, id, "go", 1); err != nil {
		t.Errorf("a signal: the new home returned %v", err)
	}
}
