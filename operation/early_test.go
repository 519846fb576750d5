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

// The second undo takes back what the first does: a call behind both has an undo of its own, or a person is asked.
func TestCancelInACallBehindTwoUndosOfATxIsParked(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	refunds := 0
	d := operation.Define("early", func(op *operation.Op, _ int) (idem.Response, error) {
		if _, err := operation.Tx(op, "reserve", func(pgx.Tx) (int, error) { return 1, nil }); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "release", func(pgx.Tx) error { return nil }); err != nil {
			return idem.Response{}, err
		}
		err := operation.Undo(op, "repay", operation.Keyed(time.Hour), func(context.Context, string) error { refunds++; return nil })
		if err != nil {
			return idem.Response{}, err
		}
		_, err = operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (int, error) {
			return 1, operation.Cancel(ctx, s.pool, op.ID())
		})
		return idem.Response{Status: 201}, err
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) || refunds != 0 {
		t.Errorf("got %v, and %d refunds, want that it is parked", err, refunds)
	}
}

// Each card has an undo that is registered before its charge. The first is declined, and another undo follows the second charge.
func TestUndoIsForTheCallBehindItThoughTheOneBeforeItWasDeclined(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var refunds []string
	d := operation.Define("cards", func(op *operation.Op, _ int) (idem.Response, error) {
		for _, card := range []string{"A", "B"} {
			err := operation.Undo(op, "repay "+card, operation.Keyed(time.Hour), func(context.Context, string) error {
				refunds = append(refunds, card)
				return nil
			})
			if err != nil {
				return idem.Response{}, err
			}
			_, err = operation.Call(op, "charge "+card, operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
				if card == "A" {
					return 0, operation.Final(errDeclined)
				}
				return 1, nil
			})
			if err != nil && !errors.Is(err, errDeclined) {
				return idem.Response{}, err
			}
		}
		if _, err := operation.Tx(op, "confirm", func(pgx.Tx) (int, error) { return 1, nil }); err != nil {
			return idem.Response{}, err
		}
		if err := operation.UndoTx(op, "withdraw", func(pgx.Tx) error { return nil }); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, idem.Reject(idem.Response{Status: 409})
	})
	res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
	if err != nil || !res.Rejected {
		t.Errorf("got %+v, %v", res, err)
	}
	if len(refunds) != 1 || refunds[0] != "B" {
		t.Errorf("taken back were %v, want the charge of B alone", refunds)
	}
}

// waits is told when a call begins to wait.
type waits chan struct{}

func (w waits) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

func (w waits) TraceEvent(_ context.Context, d idem.TraceEventData) {
	if d.Event == idem.EventWaiting {
		w <- struct{}{}
	}
}

func (waits) TraceEnd(context.Context, idem.TraceEndData) {}

// The callers of one process follow one another in memory, and those behind the first one never see the operation.
func TestCallerThatFollowsACancelledOneDoesNotBeginTheWorkAnew(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	begun, release := make(chan struct{}, 8), make(chan struct{})
	d := operation.Define("followed", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			begun <- struct{}{}
			<-release
			return s.bank.charge(ctx, key)
		})
		if err != nil {
			return idem.Response{}, err
		}
		return created, operation.Undo(op, "repay", operation.Keyed(time.Hour), func(context.Context, string) error { return nil })
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
		if err := await(t, "an answer", answers); !errors.Is(err, operation.ErrCancelled) {
			t.Errorf("a caller was told %v", err)
		}
	}
	if n := s.count(`select count(*) from idem.operations`); n != 1 {
		t.Errorf("there are %d operations", n)
	}
}

// The first caller of a process has seen that the operation is under way, and leaves when that is cancelled; the next one has waited for it in
// memory alone, and comes when the key is free.
func TestCallerWhoLeadsNextDoesNotBeginAnewWhatWasCancelledWhileItWaited(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	begun, release := make(chan struct{}, 8), make(chan struct{})
	d := operation.Define("led", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			begun <- struct{}{}
			<-release
			return s.bank.charge(ctx, key)
		})
		if err != nil {
			return idem.Response{}, err
		}
		return created, operation.Undo(op, "repay", operation.Keyed(time.Hour), func(context.Context, string) error { return nil })
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
	if err := await(t, "the owner", owner); !errors.Is(err, operation.ErrCancelled) {
		t.Fatal(err)
	}
	trap.Disarm()
	for _, c := range proxy.Conns() {
		c.Resume()
	}
	if err := await(t, "the second caller", second); !errors.Is(err, operation.ErrCancelled) {
		t.Errorf("it was told %v", err)
	}
	if n := s.count(`select count(*) from idem.operations`); n != 1 {
		t.Errorf("there are %d operations", n)
	}
}

// The undo of the first charge was registered before it, and that of the second one comes behind a Tx.
func TestCancelInASecondChargeIsNotTakenForCoveredByTheUndoOfTheFirst(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var refunds []string
	repay := func(op *operation.Op, card string) error {
		return operation.Undo(op, "repay "+card, operation.Keyed(time.Hour), func(context.Context, string) error {
			refunds = append(refunds, card)
			return nil
		})
	}
	d := operation.Define("two charges", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := repay(op, "A"); err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Call(op, "charge A", operation.Keyed(time.Hour), s.bank.charge); err != nil {
			return idem.Response{}, err
		}
		_, err := operation.Call(op, "charge B", operation.Keyed(time.Hour), func(ctx context.Context, key string) (string, error) {
			if err := operation.Cancel(ctx, s.pool, op.ID()); err != nil {
				return "", err
			}
			return s.bank.charge(ctx, key)
		})
		if err != nil {
			return idem.Response{}, err
		}
		if _, err := operation.Tx(op, "note", func(pgx.Tx) (int, error) { return 1, nil }); err != nil {
			return idem.Response{}, err
		}
		return created, repay(op, "B")
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrCancelled) {
		t.Errorf("got %v, want that it is cancelled", err)
	}
	if len(refunds) != 2 || refunds[0] != "B" || refunds[1] != "A" {
		t.Errorf("taken back were %v, want B and A", refunds)
	}
}
