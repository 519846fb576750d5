package operation_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// waits is an observer that reports when a call begins to wait.
type waits chan struct{}

func (w waits) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

func (w waits) TraceEvent(_ context.Context, d idem.TraceEventData) {
	if d.Event == idem.EventWaiting {
		w <- struct{}{}
	}
}

func (waits) TraceEnd(context.Context, idem.TraceEndData) {}

// Callers of one process wait for one another in memory. After Cancel none of them begins the work again.
func TestCancel_FollowersInMemory(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	begun, release := make(chan struct{}, 8), make(chan struct{})
	d := operation.Define("followed", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			begun <- struct{}{}
			<-release
			return s.bank.charge(ctx, key)
		}, operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error { return nil }))
		return created, err
	})
	const callers = 6
	answers, waiting := make(chan error, callers), make(waits, callers)
	call := func() {
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit), idem.WithObserver(waiting))
		answers <- err
	}
	go call()
	await(t, "the charge", begun)
	for range callers - 1 {
		go call()
		await(t, "a caller to wait", (chan struct{})(waiting))
	}
	if err := operation.Cancel(t.Context(), s.pool, s.text(`select id::text from idem.operations`)); err != nil {
		t.Fatal(err)
	}
	close(release)
	for range callers {
		if err := await(t, "an answer", answers); !errors.Is(err, operation.ErrCanceled) {
			t.Errorf("a caller got %v", err)
		}
	}
	if n := s.count(`select count(*) from idem.operations`); n != 1 {
		t.Errorf("there are %d operations", n)
	}
}

// The first caller of a process has seen the operation, and leaves. The second one has waited for the first in memory, and claims the key when
// Cancel has freed it. It gets ErrCanceled.
func TestCancel_NextLeader(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	begun, release := make(chan struct{}, 8), make(chan struct{})
	d := operation.Define("led", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			begun <- struct{}{}
			<-release
			return s.bank.charge(ctx, key)
		}, operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error { return nil }))
		return created, err
	})
	owner := make(chan error, 1)
	go func() {
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
		owner <- err
	}()
	await(t, "the charge", begun)
	proxy := pgtest.Proxy(t, s.dsn)
	there := s.through(proxy)
	waiting := make(waits, 2)
	call := func(ctx context.Context) chan error {
		answer := make(chan error, 1)
		go func() {
			_, err := d.Do(ctx, there.pool, scope, "k", hashA, 0, idem.WithWait(limit), idem.WithObserver(waiting))
			answer <- err
		}()
		await(t, "a caller to wait", (chan struct{})(waiting))
		return answer
	}
	leading, leave := context.WithCancel(t.Context())
	first, second := call(leading), call(t.Context())
	trap := proxy.ArmEach(pgproxy.Before(pgproxy.Contains("Claim")), pgproxy.Freeze)
	await(t, "a look of the first caller", trap.Fired())
	leave()
	await(t, "the first caller", first)
	if err := operation.Cancel(t.Context(), s.pool, s.operationID()); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := await(t, "the owner", owner); !errors.Is(err, operation.ErrCanceled) {
		t.Fatal(err)
	}
	trap.Disarm()
	for _, c := range proxy.Conns() {
		c.Resume()
	}
	if err := await(t, "the second caller", second); !errors.Is(err, operation.ErrCanceled) {
		t.Errorf("it got %v", err)
	}
	if n := s.count(`select count(*) from idem.operations`); n != 1 {
		t.Errorf("there are %d operations", n)
	}
}
