package operation_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/purge"
	"github.com/idem-go/idem/seal"
)

// decision waits for a signal, and answers with its value.
func decision(name string) *operation.Definition[string] {
	return operation.Define("decision", func(op *operation.Op, _ string) (idem.Response, error) {
		value, err := operation.Await[string](op, name, 20*time.Hour)
		return idem.Response{Status: 200, Body: []byte(value)}, err
	})
}

// waits has an operation of the key wait for its signal, and returns the id.
func (s *shop) waits(t *testing.T, d *operation.Definition[string], key string, opts ...idem.Option) string {
	t.Helper()
	_, err := d.Do(t.Context(), s.pool, scope, key, hashA, "", append(opts, idem.WithWait(0))...)
	if !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	return s.text(`select id::text from idem.operations where key = $1`, key)
}

func sealerOf(key byte) idem.Option {
	return idem.WithSealer(seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": bytes.Repeat([]byte{key}, 32)}}))
}

// A signal is as secret as what the operation makes of it.
func TestSignal_IsSealedAndBound(t *testing.T) {
	t.Parallel()
	s, sealed := newShop(t), sealerOf(7)
	d := decision("approve")
	mine, other := s.waits(t, d, "mine", sealed), s.waits(t, d, "other", sealed)
	send := func(id, name, value string) {
		t.Helper()
		if err := operation.Signal(t.Context(), s.pool, id, name, value, sealed); err != nil {
			t.Fatal(err)
		}
	}
	send(mine, "approve", "a secret yes")
	send(mine, "deny", "a secret no")
	send(other, "approve", "another secret")
	const readable = `position('secret'::bytea in value) > 0`
	if n := s.count(`select count(*) from idem.signals where ` + readable); n != 0 {
		t.Error("a signal is readable")
	}
	truth := s.text(`select encode(value, 'hex') from idem.signals where operation_id = $1 and name = 'approve'`, mine)
	for what, swap := range map[string]string{
		"of another operation": `select value from idem.signals where operation_id = '` + other + `'`,
		"of another name":      `select value from idem.signals where operation_id = '` + mine + `' and name = 'deny'`,
	} {
		_, err := s.pool.Exec(t.Context(), `update idem.signals set value = (`+swap+`) where operation_id = $1 and name = 'approve'`, mine)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`); err != nil { // the pause is over
			t.Fatal(err)
		}
		if _, err := d.Do(t.Context(), s.pool, scope, "mine", hashA, "", sealed, idem.WithWait(0)); !errors.Is(err, idem.ErrUnreadable) {
			t.Errorf("with the value %s: %v", what, err)
		}
	}
	_, err := s.pool.Exec(t.Context(), `update idem.signals set value = decode($2, 'hex') where operation_id = $1 and name = 'approve'`, mine, truth)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	res, err := d.Do(t.Context(), s.pool, scope, "mine", hashA, "", sealed, idem.WithWait(0))
	if err != nil || string(res.Body) != "a secret yes" {
		t.Errorf("%s, %v", res.Body, err)
	}
	if n := s.count(`select count(*) from idem.steps where ` + readable); n != 0 {
		t.Error("the value of the step is readable")
	}
}

// Else it would be taken for sent, and the operation would wait for a value that it cannot read, with no word of why.
func TestSignal_UnsealedIsRefusedByASealedOperation(t *testing.T) {
	t.Parallel()
	s, sealed := newShop(t), sealerOf(7)
	d := decision("approve")
	id, plain := s.waits(t, d, "sealed", sealed), s.waits(t, d, "plain")
	if err := operation.Signal(t.Context(), s.pool, id, "approve", "plain"); !errors.Is(err, operation.ErrUnsealed) {
		t.Errorf("got %v", err)
	}
	if err := operation.Signal(t.Context(), s.pool, id, "approve", "sealed", sealed); err != nil {
		t.Error(err)
	}
	if err := operation.Signal(t.Context(), s.pool, plain, "approve", "plain"); err != nil {
		t.Error(err)
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`); err != nil {
		t.Fatal(err)
	}
	for key, opts := range map[string][]idem.Option{"sealed": {sealed}, "plain": nil} {
		if res, err := d.Do(t.Context(), s.pool, scope, key, hashA, "", opts...); err != nil || string(res.Body) != key {
			t.Errorf("%s: %s, %v", key, res.Body, err)
		}
	}
	if err := operation.Signal(t.Context(), s.pool, id, "approve", "plain"); err != nil {
		t.Errorf("for an operation that has ended: %v", err)
	}
}

// While an operation pauses elsewhere, a signal that it will await later is no reason to wake it, whatever its name is.
func TestSignal_EarlyWakesNobody(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const name = "approve" // of a pause, and of the signal that comes after it
	d := operation.Define("decision", func(op *operation.Op, _ string) (idem.Response, error) {
		if err := operation.Sleep(op, name, 20*time.Hour); err != nil {
			return idem.Response{}, err
		}
		value, err := operation.Await[string](op, name, 20*time.Hour)
		return idem.Response{Status: 200, Body: []byte(value)}, err
	})
	id := s.waits(t, d, "k")
	if err := operation.Signal(t.Context(), s.pool, id, name, "yes"); err != nil {
		t.Fatal(err)
	}
	var looks atomic.Int64
	c, behind := newTraffic(t, s)
	c.onStatement("TakeOperations", func() { looks.Add(1) })
	behind.work(t, d)
	eventually(t, "three looks of the worker", func() bool { return looks.Load() >= 3 })
	if err := d.Resume(t.Context(), s.pool, id); !errors.Is(err, idem.ErrInProgress) {
		t.Error(err)
	}
	if epoch := s.count(`select epoch from idem.operations`); epoch != 1 {
		t.Errorf("it was claimed, in epoch %d", epoch)
	}
	s.elapse()
	eventually(t, "the operation to end", func() bool { return s.count(`select count(*) from idem.operations where state = 'completed'`) == 1 })
}

// The wait is over when the answer to a look arrives, before which the signal has come. It came in time.
func TestSignal_InTimeCountsHoweverLateItIsFound(t *testing.T) {
	t.Parallel()
	for range 20 { // until the machine is quick enough for a signal in time
		s := newShop(t)
		d := decision("approve")
		id := s.waits(t, d, "k")
		c, behind := newTraffic(t, s)
		var sent atomic.Bool
		inTime := false
		c.onStatement("ReadSignal", func() {
			if sent.Swap(true) {
				return
			}
			if err := operation.Signal(context.Background(), s.pool, id, "approve", "yes"); err != nil {
				t.Error(err)
			}
			inTime = s.count(`select count(*) from idem.signals g join idem.steps a using (operation_id) where g.sent_at < a.due_at`) == 1
			eventually(t, "the wait to be over", func() bool { return s.count(`select count(*) from idem.steps where due_at < clock_timestamp()`) == 1 })
		})
		if _, err := s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`); err != nil {
			t.Fatal(err)
		}
		if _, err := s.pool.Exec(t.Context(), `update idem.steps set due_at = clock_timestamp() + interval '2 seconds'`); err != nil {
			t.Fatal(err)
		}
		res, err := d.Do(t.Context(), behind.pool, scope, "k", hashA, "", idem.WithWait(limit))
		if !inTime {
			continue
		}
		if err != nil || string(res.Body) != "yes" {
			t.Errorf("%s, %v", res.Body, err)
		}
		return
	}
	t.Fatal("no signal was sent within two seconds")
}

// What is sent to an operation that has ended is not kept, and what it has not asked for is of no interest any more.
func TestSignal_DroppedAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := decision("approve")
	id := s.waits(t, d, "k")
	for _, name := range []string{"approve", "never asked for"} {
		if err := operation.Signal(t.Context(), s.pool, id, name, "yes"); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Resume(t.Context(), s.pool, id); err != nil {
		t.Fatal(err)
	}
	if err := operation.Signal(t.Context(), s.pool, id, "too late", "yes"); err != nil {
		t.Error(err)
	}
	if got := s.text(`select string_agg(name || ' ' || taken, ', ' order by name) from idem.signals`); got != "approve true, never asked for true" {
		t.Errorf("signals: %s", got)
	}
}

// A signal may be sent in a transaction that takes longer than an operation is kept.
func TestSignal_UncommittedDelaysThePurge(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := decision("approve")
	id := s.waits(t, d, "k")
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := operation.Signal(t.Context(), tx, id, "approve", "yes"); err != nil {
		t.Fatal(err)
	}
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil { // which the signal does not hinder
		t.Fatal(err)
	}
	if err := d.Resume(t.Context(), s.pool, id); !errors.Is(err, operation.ErrCanceled) {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set ended_at = ended_at - interval '1 year'`); err != nil {
		t.Fatal(err)
	}
	left := func() int {
		t.Helper()
		if _, err := purge.Once(t.Context(), s.pool, purge.Options{}); err != nil {
			t.Fatal(err)
		}
		return s.count(`select count(*) from idem.operations`)
	}
	if left() != 1 {
		t.Error("the operation is purged while a signal is being sent")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.sweeps set last_started_at = null`); err != nil {
		t.Fatal(err)
	}
	if n := left() + s.count(`select count(*) from idem.signals`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}
