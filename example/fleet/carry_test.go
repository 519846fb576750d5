package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/example/fleet/shop"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/seal"
)

// The client has no answer: the order was placed, and the way back was cut. It asks again after the move.
func TestRetryAfterTheMoveGetsTheAnswerThatWasLostBeforeIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open()
	lost, err := w.order(t.Context(), "in-doubt", shop.Order{Customer: "c", Request: "r", Cents: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.move(w.west, w.east, fleet.MoveConfig{})
	again, err := w.order(t.Context(), "in-doubt", shop.Order{Customer: "c", Request: "r", Cents: 1})
	if err != nil || again != lost {
		t.Errorf("answered %q and %v, and before the move %q", again, err, lost)
	}
	if n := number(t, w.east.Pool, "select count(*) from orders"); n != 1 {
		t.Errorf("%d orders", n)
	}
}

// The old home still has the row of the operation, and nothing of what the operation commits there would be refused by a trigger: the epoch is
// all that keeps two processes from telling two outcomes.
func TestOperationTellsNoOutcomeAtTheOldHomeAfterItsTenantHasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	called, answer := make(chan struct{}), make(chan struct{})
	define := func(says string, call func()) *operation.Definition[int] {
		return operation.Define("tell", func(op *operation.Op, _ int) (idem.Response, error) {
			said, err := operation.Call(op, "ask", operation.Keyed(time.Hour), func(context.Context, string) (string, error) { call(); return says, nil })
			return idem.Response{Status: http.StatusOK, Body: []byte(said)}, err
		})
	}
	ended := make(chan error, 1)
	go func() {
		_, err := define("old", func() { close(called); <-answer }).Do(t.Context(), w.west.Pool, scope, "k", hash("k"), 1, idem.WithWait(0))
		ended <- err
	}()
	<-called
	w.move(w.west, w.east, fleet.MoveConfig{Progress: func(s fleet.Stage, _ int64) {
		if s != fleet.Arrived {
			return
		}
		close(answer)
		if err := <-ended; err == nil {
			t.Error("the old home has told an outcome")
		}
	}})
	// What the run at the old home has learned the next one of the same process goes on with: either answer is that of the one call.
	there, err := define("new", func() {}).Do(t.Context(), w.east.Pool, scope, "k", hash("k"), 1)
	if err != nil || there.Status != http.StatusOK {
		t.Errorf("the new home says %v, %v", there, err)
	}
}

// The process at the old home is behind the charge when the tenant leaves, and in front of its next commit.
func TestOperationWhoseCallIsUnderWayIsFencedAtTheOldHomeAndEndsAtTheNewOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var keys []string
	var placed atomic.Int32
	called, answer := make(chan struct{}), make(chan struct{})
	define := func(blocks bool) *operation.Definition[int] {
		return operation.Define("pay", func(op *operation.Op, _ int) (idem.Response, error) {
			_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(_ context.Context, key string) (string, error) {
				mu.Lock()
				keys = append(keys, key)
				mu.Unlock()
				if blocks {
					close(called)
					<-answer
				}
				return "charged", nil
			})
			if err != nil {
				return idem.Response{}, err
			}
			_, err = operation.Tx(op, "place", func(tx pgx.Tx) (bool, error) {
				placed.Add(1)
				_, err := tx.Exec(op.Context(), "insert into orders (tenant, id, customer, number, request, cents) values ($1, $2, 'c', 1, 'r', 1)", tenant, op.ID())
				return true, err
			})
			return idem.Response{Status: http.StatusCreated, Body: []byte(op.ID())}, err
		})
	}
	ended := make(chan error, 1)
	go func() {
		_, err := define(true).Do(t.Context(), w.west.Pool, scope, "k", hash("k"), 1, idem.WithWait(0))
		ended <- err
	}()
	<-called
	w.move(w.west, w.east, fleet.MoveConfig{})
	there, err := define(false).Do(t.Context(), w.east.Pool, scope, "k", hash("k"), 1)
	if err != nil || there.Status != http.StatusCreated {
		t.Errorf("the new home says %v, %v", there, err)
	}
	close(answer)
	if err := <-ended; err == nil {
		t.Error("the process at the old home has told an outcome")
	}
	if west, east := number(t, w.west.Pool, "select count(*) from orders"), number(t, w.east.Pool, "select count(*) from orders"); west != 0 || east != 1 {
		t.Errorf("%d orders at the old home, %d at the new one", west, east)
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) != 1 {
		t.Errorf("the bank was given %d keys", len(keys))
	}
}

func TestOperationsThatSleepWaitAndAreParkedGoOnAtTheNewHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	waits := operation.Define("waits", func(op *operation.Op, _ int) (idem.Response, error) {
		n, err := operation.Await[string](op, "go", time.Hour)
		return idem.Response{Status: 200, Body: []byte(n)}, err
	})
	parks := operation.Define("parks", func(op *operation.Op, _ int) (idem.Response, error) {
		v, err := operation.Call(op, "once", operation.Once, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
		return idem.Response{Status: 200, Body: []byte(v)}, err
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := waits.Do(ctx, w.west.Pool, scope, "waits", hash("k"), 1, idem.WithWait(0)); err == nil {
		t.Fatal("it does not wait")
	}
	if _, err := parks.Do(ctx, w.west.Pool, scope, "parks", hash("k"), 1, idem.WithWait(0)); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	var id string
	if err := w.west.Pool.QueryRow(ctx, "select id::text from idem.operations where name = 'waits'").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if err := operation.Signal(ctx, w.west.Pool, id, "go", "sent before the move"); err != nil {
		t.Fatal(err)
	}
	w.move(w.west, w.east, fleet.MoveConfig{})
	got, err := waits.Do(ctx, w.east.Pool, scope, "waits", hash("k"), 1)
	if err != nil || string(got.Body) != "sent before the move" {
		t.Errorf("the one that waits: %v, %v", got, err)
	}
	if _, err := parks.Do(ctx, w.east.Pool, scope, "parks", hash("k"), 1, idem.WithWait(0)); !errors.Is(err, operation.ErrParked) {
		t.Errorf("the one that is parked: %v", err)
	}
	if err := w.west.Pool.QueryRow(ctx, "select state from idem.operations").Scan(&id); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("the old home still has an operation: %v", err)
	}
}

// Messages of both sides go along: those that are about to leave in their order, those that are not due, dead ones, and the memory of those
// that came in.
func TestMessagesMoveInTheirOrderWithTheirMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	if err := fleet.Place(ctx, w.east, "globex"); err != nil { // whose numbers are in front of those that come
		t.Fatal(err)
	}
	for c, of := range map[*fleet.Cluster]string{&w.west: tenant, &w.east: "globex"} {
		err := pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
			for _, payload := range []string{"1", "2", "3"} {
				if err := outbox.Add(ctx, tx, outbox.Message{Topic: "t", Key: of + "/c", Payload: []byte(payload)}); err != nil {
					return err
				}
			}
			return outbox.Add(ctx, tx, outbox.Message{Topic: "t", Key: of + "/c", Payload: []byte("later"), NotBefore: time.Now().Add(time.Hour)})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	handled, dead := inbox.Message{Source: "s", ID: "1", Payload: []byte("x")}, inbox.Message{Source: "s", ID: "2", Payload: []byte("y")}
	if _, err := inbox.Handle(ctx, w.west.Pool, tenant+"/c", handled, func(pgx.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if out, err := inbox.Handle(ctx, w.west.Pool, tenant+"/c", dead, func(pgx.Tx) error { return errors.New("no") }, inbox.WithMaxAttempts(1)); err != nil || out.State != inbox.Dead {
		t.Fatal(out, err)
	}
	w.move(w.west, w.east, fleet.MoveConfig{})
	err := pgx.BeginFunc(ctx, w.east.Pool, func(tx pgx.Tx) error {
		return outbox.Add(ctx, tx, outbox.Message{Topic: "t", Key: tenant + "/c", Payload: []byte("4")})
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := w.east.Pool.Query(ctx, "select convert_from(payload, 'UTF8') from idem.outbox where aggregateid like 'acme/%' order by seq")
	if left, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || !slices.Equal(left, []string{"1", "2", "3", "4"}) {
		t.Errorf("%v are about to leave, %v", left, err)
	}
	for what, query := range map[string]string{
		"delayed messages":       "select count(*) from idem.delayed where aggregateid like 'acme/%'",
		"dead letters":           "select count(*) from idem.dead_letters",
		"messages of the others": "select count(*) - 2 from idem.outbox where aggregateid like 'globex/%'",
	} {
		if n := number(t, w.east.Pool, query); n != 1 {
			t.Errorf("%d %s", n, what)
		}
	}
	out, err := inbox.Handle(ctx, w.east.Pool, tenant+"/c", handled, func(pgx.Tx) error { return errors.New("handled again") })
	if err != nil || out.State != inbox.Duplicate {
		t.Errorf("a message that was handled before the move: %v, %v", out, err)
	}
	w.expectNothing(w.west)
}

// What a sealed answer is bound to moves unchanged.
func TestSealedAnswerIsReadAtTheNewHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": bytes.Repeat([]byte{7}, seal.SecretSize)}})
	first, err := idem.Do(t.Context(), w.west.Pool, scope, "k", hash("k"), insert(t.Context()), idem.WithSealer(key))
	if err != nil {
		t.Fatal(err)
	}
	w.move(w.west, w.east, fleet.MoveConfig{})
	again, err := idem.Do(t.Context(), w.east.Pool, scope, "k", hash("k"), insert(t.Context()), idem.WithSealer(key))
	if err != nil || !again.Replayed || !bytes.Equal(again.Body, first.Body) {
		t.Errorf("%v, %v", again, err)
	}
}

// Rows that the old home deletes between two rounds are not at the new one either.
func TestKeyThatIsEvictedDuringTheMoveIsFreeAtTheNewHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, key := range []string{"stays", "evicted"} {
		if _, err := idem.Do(t.Context(), w.west.Pool, scope, key, hash(key), insert(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	w.move(w.west, w.east, fleet.MoveConfig{Progress: func(s fleet.Stage, _ int64) {
		if s == fleet.Compared {
			if _, err := w.west.Pool.Exec(t.Context(), "delete from idem.records where key = 'evicted'"); err != nil {
				t.Error(err)
			}
		}
	}})
	for key, replayed := range map[string]bool{"stays": true, "evicted": false} {
		if got, err := idem.Do(t.Context(), w.east.Pool, scope, key, hash(key), insert(t.Context())); err != nil || got.Replayed != replayed {
			t.Errorf("%s: %v, %v", key, got, err)
		}
	}
}
