package operation_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

// completed reports whether n operations have ended well.
func (s *shop) completed(n int) func() bool {
	return func() bool { return s.count(`select count(*) from idem.operations where state = 'completed'`) == n }
}

// The signal has taken the operation up long before its wake_at. What the worker hears of that, or reads behind it, is lost.
func TestWorker_RecoversAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]struct {
		at  pgproxy.Point
		how pgproxy.Action
	}{
		"the answer of the statement that claims it": {pgproxy.AfterAnswer(pgproxy.Contains("TakeOperations"), "UPDATE 1"), pgproxy.Reset},
		"that answer, without a word":                {pgproxy.AfterAnswer(pgproxy.Contains("TakeOperations"), "UPDATE 1"), pgproxy.BlackHole},
		"what is asked for behind it":                {pgproxy.Before(pgproxy.Contains("LoadSteps")), pgproxy.Reset},
		"the answer to that":                         {pgproxy.AfterAnswer(pgproxy.Contains("LoadSteps")), pgproxy.Reset},
		"the answer to that, without a word":         {pgproxy.AfterAnswer(pgproxy.Contains("LoadSteps")), pgproxy.BlackHole},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := decision("approve")
			id := s.waits(t, d, "k")
			proxy := pgtest.Proxy(t, s.dsn)
			trap := proxy.Arm(lost.at, lost.how)
			s.through(proxy, maxConns(1)).work(t, d)
			if err := operation.Signal(t.Context(), s.pool, id, "approve", "yes"); err != nil {
				t.Fatal(err)
			}
			await(t, "the loss", trap.Fired())
			eventually(t, "the operation to end", s.completed(1))
		})
	}
}

// A process without a Worker has lost what it took up, and works on something else: its presence goes on.
func TestResume_ReleasesAClaimWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := decision("approve")
	id := s.waits(t, d, "lost")
	proxy := pgtest.Proxy(t, s.dsn)
	behind := s.through(proxy)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), behind)
	await(t, "the call", b.begun)
	if err := operation.Signal(t.Context(), s.pool, id, "approve", "yes"); err != nil {
		t.Fatal(err)
	}
	proxy.Arm(pgproxy.AfterAnswer(pgproxy.Contains("TakeOperation"), "UPDATE 1"), pgproxy.Reset)
	if err := d.Resume(t.Context(), behind.pool, id); err == nil {
		t.Fatal("nothing was lost")
	}
	if n := s.count(`select count(*) from idem.operations where owner is not null and name = 'decision'`); n != 1 {
		t.Fatal("it was not claimed")
	}
	eventually(t, "it to be due for others", func() bool {
		due, err := operation.Due(t.Context(), s.pool, []string{"decision"}, 10)
		return err == nil && len(due) == 1 && due[0].ID == id
	})
	if err := d.Resume(t.Context(), s.pool, id); err != nil {
		t.Error(err)
	}
	b.release <- nil
	if a := await(t, "the answer", answers); a.err != nil {
		t.Error(a.err)
	}
}

func TestSignal_WakesUnderSerializable(t *testing.T) {
	t.Parallel()
	const n = 40
	s := newShop(t)
	serializable := func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	}
	d := decision("approve")
	ids := make([]string, n)
	for i := range ids {
		ids[i] = s.waits(t, d, fmt.Sprint("k", i))
	}
	for range 2 {
		shopOn(t, s.dsn, serializable).work(t, d)
	}
	there := shopOn(t, s.dsn, serializable)
	for _, id := range ids {
		send := func() error { return operation.Signal(t.Context(), there.pool, id, "approve", "yes") }
		err := send()
		for err != nil && idem.Retryable(err) {
			err = send()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all operations to end", s.completed(n))
}

// erratic is a Sealer that panics when it opens something for the first time.
type erratic struct {
	idem.Sealer
	panics sync.Once
}

func (e *erratic) Open(keyID string, sealed, bound []byte) ([]byte, error) {
	e.panics.Do(func() { panic("the vault is closed") })
	return e.Sealer.Open(keyID, sealed, bound)
}

// What runs before the function may panic, too.
func TestSealer_PanicsOnOpen(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	sealer := seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": bytes.Repeat([]byte{7}, 32)}})
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := operation.Define("checkout", func(op *operation.Op, _ string) (idem.Response, error) { return created, nil })
	if _, err := d.Start(t.Context(), tx, scope, "k", hashA, "", idem.WithSealer(sealer)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.workWith(t, operation.WorkerConfig{Options: []idem.Option{idem.WithSealer(&erratic{Sealer: sealer})}}, d)
	eventually(t, "the operation to end", s.completed(1))
}

// A signal counts by the moment at which it was sent, however late a process finds it.
func TestSignal_CountsByWhenItWasSent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("decision", func(op *operation.Op, _ string) (idem.Response, error) {
		value, err := operation.Await[string](op, "approve", 20*time.Hour)
		if errors.Is(err, operation.ErrTimeout) {
			value, err = "no approval", nil
		}
		return idem.Response{Status: 200, Body: []byte(value)}, err
	})
	for key, late := range map[string]bool{"late": true, "in time": false} {
		id := s.waits(t, d, key)
		if late {
			s.elapse()
		}
		if err := operation.Signal(t.Context(), s.pool, id, "approve", "yes"); err != nil {
			t.Fatal(err)
		}
		if !late {
			_, err := s.pool.Exec(t.Context(), `update idem.signals set sent_at = sent_at - interval '1 day' where operation_id = $1`, id)
			if err != nil {
				t.Fatal(err)
			}
			s.elapse()
		}
		want := map[bool]string{true: "no approval", false: "yes"}[late]
		res, err := d.Do(t.Context(), s.pool, scope, key, hashA, "", idem.WithWait(limit))
		if err != nil || string(res.Body) != want {
			t.Errorf("%s: %q, %v", key, res.Body, err)
		}
	}
}
