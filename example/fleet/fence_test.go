package fleet_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
)

const scope = tenant + "/test"

func insert(ctx context.Context) func(tx pgx.Tx) (idem.Response, error) {
	return func(tx pgx.Tx) (idem.Response, error) {
		id, _ := idem.ExecutionID(tx)
		_, err := tx.Exec(ctx, "insert into orders (tenant, id, customer, number, request, cents) values ($1, $2, 'c', 1, 'r', 1)", tenant, id)
		return idem.Response{Status: 201, Body: []byte(id)}, err
	}
}

// A transaction that has its snapshot from before the move does not see that the tenant has left: the lock on the row tells it.
func TestOldHomeRefusesAtEachIsolationLevelAlsoInAnOldSnapshot(t *testing.T) {
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
			w.move(w.west, w.east, fleet.MoveConfig{})
			if _, err = idem.DoTx(t.Context(), tx, scope, "k", hash("k"), insert(t.Context())); err == nil {
				err = tx.Commit(t.Context())
			}
			if err == nil {
				t.Error("the old home has executed")
			}
			if _, err := idem.Do(t.Context(), w.west.Pool, scope, "k", hash("k"), insert(t.Context()), idem.WithTxOptions(pgx.TxOptions{IsoLevel: level})); fleet.Away(err) == nil || fleet.Away(err).Home != "east" {
				t.Errorf("the old home says %v", err)
			}
			nothing := func(pgx.Tx) (idem.Response, error) { return idem.Response{Status: 204}, nil }
			if _, err := idem.Do(t.Context(), w.west.Pool, scope, "claim", hash("k"), nothing, idem.WithTxOptions(pgx.TxOptions{IsoLevel: level})); fleet.Away(err) == nil {
				t.Errorf("the old home has given a key to a function that writes nothing, and says %v", err)
			}
			if _, err := idem.Do(t.Context(), w.east.Pool, scope, "k", hash("k"), insert(t.Context()), idem.WithTxOptions(pgx.TxOptions{IsoLevel: level})); err != nil {
				t.Errorf("the new home says %v", err)
			}
			if n := number(t, w.west.Pool, "select count(*) from orders"); n != 0 {
				t.Errorf("the old home has %d orders", n)
			}
		})
	}
}

func TestWhatWritesForATenantWithoutAClaimIsRefusedAtTheOldHomeAsWell(t *testing.T) {
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
	w.move(w.west, w.east, fleet.MoveConfig{Progress: func(s fleet.Stage, _ int64) {
		if s != fleet.Arrived { // the rows are still there
			return
		}
		defer close(left)
		for what, write := range map[string]func() error{
			"a row of the service's": func() error {
				_, err := w.west.Pool.Exec(t.Context(), "insert into customers (tenant, name, orders) values ($1, 'c', 0)", tenant)
				return err
			},
			"a message that comes in": func() error {
				_, err := inbox.Handle(t.Context(), w.west.Pool, tenant+"/billing", inbox.Message{Source: "s", ID: "1"}, func(pgx.Tx) error { return nil })
				return err
			},
			"a signal": func() error { return operation.Signal(t.Context(), w.west.Pool, id, "go", 1) },
		} {
			if err := write(); fleet.Away(err) == nil {
				t.Errorf("%s: the old home says %v", what, err)
			}
		}
	}})
	<-left
	if err := operation.Signal(t.Context(), w.east.Pool, id, "go", 1); err != nil {
		t.Errorf("a signal: the new home says %v", err)
	}
}

// A note has the number of its transaction, and rows of a savepoint have one of their own. The mover looks twice before such a transaction commits.
func TestRowOfASavepointThatIsOpenWhileTheRestIsCopiedArrives(t *testing.T) {
	t.Parallel()
	for when, stages := range map[string]struct{ begins, ends fleet.Stage }{
		"begun before the mover listens":     {fleet.Copied, fleet.Waiting},
		"begun behind the comparison of all": {fleet.Compared, fleet.Copied},
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var tx pgx.Tx
			var first idem.Result
			ended := false
			w.move(w.west, w.east, fleet.MoveConfig{Patience: 50 * time.Millisecond, Progress: func(s fleet.Stage, _ int64) {
				var err error
				switch {
				case tx == nil && s == stages.begins:
					if tx, err = w.west.Pool.Begin(t.Context()); err == nil {
						first, err = idem.DoTx(t.Context(), tx, scope, "k", hash("k"), insert(t.Context()))
					}
					if err == nil { // so that a later transaction has committed
						_, err = w.west.Pool.Exec(t.Context(), "create table later (); drop table later")
					}
				case tx != nil && !ended && s == stages.ends:
					err, ended = tx.Commit(t.Context()), true
				}
				if err != nil {
					t.Error(err)
				}
			}})
			again, err := idem.Do(t.Context(), w.east.Pool, scope, "k", hash("k"), insert(t.Context()))
			if err != nil || !again.Replayed || string(again.Body) != string(first.Body) {
				t.Errorf("the new home says %v, %v; the old one said %s", again, err, first.Body)
			}
			if n := number(t, w.east.Pool, "select count(*) from orders"); n != 1 {
				t.Errorf("the new home has %d orders", n)
			}
		})
	}
}

// A transaction that takes long holds up the move, and not the callers.
func TestCallersGoOnWhileTheMoveWaitsForALongTransaction(t *testing.T) {
	t.Parallel()
	for when, begun := range map[string]fleet.Stage{"from before the move": "", "from behind the comparison of all": fleet.Compared} {
		t.Run(when, func(t *testing.T) { t.Parallel(); callersGoOnBesideALongTransaction(t, begun) })
	}
}

func callersGoOnBesideALongTransaction(t *testing.T, begun fleet.Stage) {
	w := newWorld(t)
	executing, end := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	long := func() {
		go func() {
			_, err := idem.Do(t.Context(), w.west.Pool, scope, "long", hash("long"), func(tx pgx.Tx) (idem.Response, error) {
				close(executing)
				<-end
				return insert(t.Context())(tx)
			})
			ended <- err
		}()
		<-executing
	}
	if begun == "" {
		long()
	}
	waiting, moved := make(chan struct{}, 100), make(chan fleet.Report, 1)
	go func() {
		began := begun == ""
		moved <- w.move(w.west, w.east, fleet.MoveConfig{Patience: 50 * time.Millisecond, Progress: func(s fleet.Stage, _ int64) {
			switch {
			case s == begun:
				long()
				began = true
			case s == fleet.Waiting && began:
				select {
				case waiting <- struct{}{}:
				default:
				}
			}
		}})
	}()
	<-waiting
	router := fleet.NewRouter(w.west, w.east)
	err := router.Do(t.Context(), tenant, func(ctx context.Context, home fleet.Cluster) error {
		_, err := idem.Do(ctx, home.Pool, scope, "quick", hash("quick"), insert(ctx))
		if home.Name != "west" {
			err = errors.Join(err, errors.New("it has moved"))
		}
		return err
	})
	if err != nil {
		t.Errorf("a caller beside it: %v", err)
	}
	close(end)
	if err := <-ended; err != nil {
		t.Errorf("the long one: %v", err)
	}
	if report := <-moved; begun != "" && report.Tries < 2 {
		t.Errorf("the fence was tried %d times", report.Tries)
	}
	for _, key := range []string{"long", "quick"} {
		if again, err := idem.Do(t.Context(), w.east.Pool, scope, key, hash(key), insert(t.Context())); err != nil || !again.Replayed {
			t.Errorf("%s: the new home says %v, %v", key, again, err)
		}
	}
}

func TestMoveThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	if _, err := fleet.Move(ctx, w.east, w.west, tenant, fleet.MoveConfig{}); !errors.Is(err, fleet.ErrNotHere) {
		t.Errorf("from where it is not: %v", err)
	}
	if _, err := fleet.Move(ctx, w.west, w.east, "a/b", fleet.MoveConfig{}); !errors.Is(err, fleet.ErrInvalidTenant) {
		t.Errorf("a tenant whose name does not begin names: %v", err)
	}
	if err := fleet.Place(ctx, w.west, tenant); !errors.Is(err, fleet.ErrPlaced) {
		t.Errorf("placed twice: %v", err)
	}
	w.move(w.west, w.east, fleet.MoveConfig{Progress: func(s fleet.Stage, _ int64) {
		if s == fleet.Copied {
			if _, err := fleet.Move(ctx, w.west, w.east, tenant, fleet.MoveConfig{}); !errors.Is(err, fleet.ErrMoving) {
				t.Errorf("moved twice at a time: %v", err)
			}
		}
	}})
	w.move(w.west, w.east, fleet.MoveConfig{}) // again: there is nothing left to do
}

// What comes behind the fence takes too long each time, so that nothing is decided, and callers have their turn in between.
func TestMoveWhosePauseWouldBeTooLongGoesBackEachTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var waited, left int
	_, err := fleet.Move(ctx, w.west, w.east, tenant, fleet.MoveConfig{MaxPause: 1, Progress: func(s fleet.Stage, _ int64) {
		switch s {
		case fleet.Left:
			left++
		case fleet.Waiting:
			if _, err := idem.Do(t.Context(), w.west.Pool, scope, strconv.Itoa(waited), hash("k"), insert(t.Context())); err != nil {
				t.Errorf("a caller after try %d: %v", waited, err)
			}
			if waited++; waited == 2 {
				stop()
			}
		}
	}})
	if !errors.Is(err, context.Canceled) || waited != 2 || left != 0 {
		t.Errorf("%d tries, and it has left %d times: %v", waited, left, err)
	}
	w.move(w.west, w.east, fleet.MoveConfig{})
	if n := number(t, w.east.Pool, "select count(*) from orders"); n != 2 {
		t.Errorf("%d orders have arrived", n)
	}
}
