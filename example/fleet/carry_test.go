package fleet_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/example/fleet"
	"github.com/idem-go/idem/inbox"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/seal"
)

// A client that has lost the answer before the move retries after the move.
func TestMove_RetryGetsTheAnswerThatWasLostBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": bytes.Repeat([]byte{7}, seal.SecretSize)}})
	options := map[string][]idem.Option{"plain": nil, "sealed": {idem.WithSealer(key)}}
	lost := map[string]string{}
	for name := range options {
		first, err := do(t, w.west, name, options[name]...)
		if err != nil {
			t.Fatal(err)
		}
		lost[name] = string(first.Body)
	}
	w.move(nil)
	for name, before := range lost {
		if again, err := do(t, w.east, name, options[name]...); err != nil || !again.Replayed || string(again.Body) != before {
			t.Errorf("%s: answered %s, %v; want %s as before the move", name, again.Body, err, before)
		}
	}
}

// A process of the old home is in a Call while the tenant moves. Its next commit is refused because
// of the epoch. No trigger checks that commit.
func TestMove_OperationInACallEndsAtTheNewHomeOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	var keys []string
	called, answer := make(chan struct{}), make(chan struct{})
	define := func(wait func()) *operation.Definition[int] {
		return operation.Define("pay", func(op *operation.Op, _ int) (idem.Response, error) {
			_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(_ context.Context, key string) (string, error) {
				mu.Lock()
				keys = append(keys, key)
				mu.Unlock()
				wait()
				return "charged", nil
			})
			return idem.Response{Status: http.StatusCreated}, err
		})
	}
	ended := make(chan error, 1)
	go func() {
		_, err := define(func() { close(called); <-answer }).Do(t.Context(), w.west.Pool, scope, "k", hash("k"), 1, idem.WithWait(0))
		ended <- err
	}()
	<-called
	w.move(func(s fleet.Stage) {
		if s != fleet.Arrived { // the rows are still in the old home
			return
		}
		close(answer)
		if err := <-ended; err == nil {
			t.Error("the operation has ended in the old home")
		}
	})
	there, err := define(func() {}).Do(t.Context(), w.east.Pool, scope, "k", hash("k"), 1)
	if err != nil || there.Status != http.StatusCreated {
		t.Errorf("in the new home: %v, %v", there, err)
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) != 1 {
		t.Errorf("the bank received %d keys, want 1", len(keys))
	}
}

func TestMove_OperationsThatWaitOrAreParkedContinue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	waits := operation.Define("waits", func(op *operation.Op, _ int) (idem.Response, error) {
		n, err := operation.Await[string](op, "go", time.Hour)
		return idem.Response{Status: 200, Body: []byte(n)}, err
	})
	parks := operation.Define("parks", func(op *operation.Op, _ int) (idem.Response, error) {
		v, err := operation.Call(op, "once", operation.Once, func(context.Context, string) (string, error) { return "", errors.New("no answer") })
		return idem.Response{Status: 200, Body: []byte(v)}, err
	})
	if _, err := waits.Do(ctx, w.west.Pool, scope, "waits", hash("k"), 1, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	if _, err := parks.Do(ctx, w.west.Pool, scope, "parks", hash("k"), 1, idem.WithWait(0)); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	signal(t, w.west, "waits", "sent before the move")
	w.move(nil)
	got, err := waits.Do(ctx, w.east.Pool, scope, "waits", hash("k"), 1)
	if err != nil || string(got.Body) != "sent before the move" {
		t.Errorf("the waiting operation: %v, %v", got, err)
	}
	if _, err := parks.Do(ctx, w.east.Pool, scope, "parks", hash("k"), 1, idem.WithWait(0)); !errors.Is(err, operation.ErrParked) {
		t.Errorf("the parked operation: %v", err)
	}
}

// signal sends the signal go to the operation with a key.
func signal(t *testing.T, c fleet.Cluster, key string, value any) {
	t.Helper()
	var id string
	if err := c.Pool.QueryRow(t.Context(), `SELECT id::text FROM idem.operations WHERE key = $1`, key).Scan(&id); err != nil {
		t.Error(err)
	}
	if err := operation.Signal(t.Context(), c.Pool, id, "go", value); err != nil {
		t.Error(err)
	}
}

// Unpublished messages keep their order. Delayed messages, dead letters and the inbox records move
// too.
func TestMove_MessagesKeepTheirOrderAndMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	if err := fleet.Place(ctx, w.east, "globex"); err != nil { // its messages take the first sequence numbers
		t.Fatal(err)
	}
	add := func(c fleet.Cluster, of, payload string, at time.Time) {
		err := pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
			return outbox.Add(ctx, tx, outbox.Message{Topic: "t", Key: of + "/c", Payload: []byte(payload), NotBefore: at})
		})
		if err != nil {
			t.Error(err)
		}
	}
	for c, of := range map[*fleet.Cluster]string{&w.west: tenant, &w.east: "globex"} {
		for _, payload := range []string{"1", "2", "3"} {
			add(*c, of, payload, time.Time{})
		}
		add(*c, of, "later", time.Now().Add(time.Hour))
	}
	handled, dead := inbox.Message{Source: "s", ID: "1", Payload: []byte("x")}, inbox.Message{Source: "s", ID: "2", Payload: []byte("y")}
	if _, err := inbox.Handle(ctx, w.west.Pool, tenant+"/c", handled, func(pgx.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if out, err := inbox.Handle(ctx, w.west.Pool, tenant+"/c", dead, func(pgx.Tx) error { return errors.New("no") }, inbox.WithMaxAttempts(1)); err != nil || out.State != inbox.Dead {
		t.Fatal(out, err)
	}
	w.move(nil)
	add(w.east, tenant, "4", time.Time{})
	rows, _ := w.east.Pool.Query(ctx, "select convert_from(payload, 'UTF8') from idem.outbox where aggregateid like 'acme/%' order by seq")
	if left, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || !slices.Equal(left, []string{"1", "2", "3", "4"}) {
		t.Errorf("the outbox has %v, %v", left, err)
	}
	for what, query := range map[string]string{
		"delayed messages":                  "select count(*) from idem.delayed where aggregateid like 'acme/%'",
		"dead letters":                      "select count(*) from idem.dead_letters",
		"messages of the other tenant, - 2": "select count(*) - 2 from idem.outbox where aggregateid like 'globex/%'",
	} {
		if n := number(t, w.east, query); n != 1 {
			t.Errorf("%d %s", n, what)
		}
	}
	out, err := inbox.Handle(ctx, w.east.Pool, tenant+"/c", handled, func(pgx.Tx) error { return errors.New("handled again") })
	if err != nil || out.State != inbox.Duplicate {
		t.Errorf("a message that was handled before the move: %v, %v", out, err)
	}
	for _, table := range []string{"records", "inbox", "outbox", "delayed", "dead_letters"} {
		if n := number(t, w.west, "select count(*) from idem."+table); n != 0 {
			t.Errorf("the old home has %d rows left in idem.%s", n, table)
		}
	}
}
