package operation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// A caller that leaves records the outcomes of its calls first. The answer to that COMMIT may be lost.
func TestDo_CanceledContextWithALostCommit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy, err := pgproxy.New(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	d := operation.Define("leaving", func(op *operation.Op, in string) (idem.Response, error) {
		if _, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge); err != nil {
			return idem.Response{}, err
		}
		if ctx.Err() == nil {
			proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit), pgproxy.Reset)
			leave()
		}
		_, err := operation.Tx(op, "confirm", func(tx pgx.Tx) (string, error) { return write("confirm " + in)(tx) })
		return created, err
	})
	if _, err := d.Do(ctx, s.through(proxy).pool, scope, "k", hashA, "a"); !errors.Is(err, idem.ErrInProgress) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "a", idem.WithWait(limit)); err != nil {
		t.Error(err)
	}
	if n, _ := s.bank.keys(); n != 1 {
		t.Errorf("the bank was charged under %d keys", n)
	}
}

// The connection is cut while a caller leaves whose call has returned. A call that is Once must not be in doubt because of it.
func TestDo_RecordsTheCallBeforeItReleases(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy := pgtest.Proxy(t, s.dsn)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	d := operation.Define("released", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Once, func(ctx context.Context, key string) (string, error) {
			answer, err := s.bank.charge(ctx, key)
			proxy.Arm(pgproxy.Before(pgproxy.IsCommit), pgproxy.Reset)
			leave()
			return answer, err
		})
		return created, err
	})
	if _, err := d.Do(ctx, s.through(proxy).pool, scope, "k", hashA, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	if got := s.text(`select outcome from idem.steps where name = 'charge'`); got != "done" {
		t.Errorf("the recorded outcome of the call is %q", got)
	}
}

// The run behind Cancel reads the record again. Its caller may leave just then, before the outcome of the call is recorded.
func TestCancel_CallerThatLeavesKeepsTheOutcome(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	proxy := pgtest.Proxy(t, s.dsn)
	there := s.through(proxy)
	traps := make(chan *pgproxy.Trap, 1)
	d := operation.Define("noticed", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Once, func(ctx context.Context, key string) (string, error) {
			if err := operation.Cancel(ctx, s.pool, s.operationID()); err != nil {
				return "", err
			}
			traps <- proxy.Arm(pgproxy.Before(pgproxy.Contains("TakeOperation")), pgproxy.Freeze)
			return s.bank.charge(ctx, key)
		}, operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error { return nil }))
		return created, err
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	answer := make(chan error, 1)
	go func() {
		_, err := d.Do(ctx, there.pool, scope, "k", hashA, 0)
		answer <- err
	}()
	await(t, "the operation to be read anew", await(t, "the call", traps).Fired())
	leave()
	for _, c := range proxy.Conns() {
		c.Resume()
	}
	if err := await(t, "the caller", answer); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	if got := s.text(`select outcome from idem.steps where name = 'charge'`); got != "done" {
		t.Errorf("the recorded outcome of the call is %q", got)
	}
}
