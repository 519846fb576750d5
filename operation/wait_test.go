package operation_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
)

// rate is an error that errors.As finds by its type.
type rate struct{ Percent int }

func (r *rate) Error() string { return "the rate has changed" }

// approval charges, blocks in a Call until release is closed, and ends in an error.
func (s *shop) approval(end error, inside chan<- struct{}, release <-chan struct{}) *operation.Definition[string] {
	return operation.Define("approval", func(op *operation.Op, _ string) (idem.Response, error) {
		_, _ = operation.Call(op, "charge", operation.Once, s.bank.charge)
		_, err := operation.Call(op, "ask", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			inside <- struct{}{}
			<-release
			return 0, nil
		})
		return idem.Response{}, first(err, operation.Final(end))
	})
}

// Several calls of one request wait. If each of them began a new operation, the card would be
// charged as often.
func TestWaiters_GetTheErrorAndBeginNothing(t *testing.T) {
	t.Parallel()
	var found *rate
	s, sealed := newShop(t), sealerOf(7)
	there := s.aside()
	inside, release := make(chan struct{}, 8), make(chan struct{})
	d := s.approval(&rate{12}, inside, release)
	const each = 3
	answers, waiting := make(chan error, 2*each), make(waits, 2*each)
	call := func(from *shop) {
		_, err := d.Do(t.Context(), from.pool, scope, "k", hashA, "", sealed, idem.WithWait(limit), idem.WithObserver(waiting))
		answers <- err
	}
	go call(s)
	await(t, "the first caller to be inside", inside)
	for range each - 1 {
		go call(s)
		await(t, "a caller to wait", (chan struct{})(waiting))
	}
	for range each {
		go call(there)
		await(t, "a caller of another process to wait", (chan struct{})(waiting))
	}
	close(release)
	for range 2 * each {
		if err := await(t, "an answer", answers); !operation.IsFinal(err) || !errors.As(err, &found) || found.Percent != 12 {
			t.Errorf("a caller got %#v", err)
		}
	}
	if n, _ := s.bank.keys(); n != 1 {
		t.Errorf("the bank was charged under %d keys", n)
	}
	s.wantCount(0, `select count(*) from idem.steps where position('Percent'::bytea in value) > 0`)
	if _, err := d.Do(t.Context(), there.pool, scope, "k", hashA, "", sealed); !operation.IsFinal(err) {
		t.Error(err)
	}
	if n, _ := s.bank.keys(); n != 2 {
		t.Errorf("behind its end the key is not free: the bank was charged under %d keys", n)
	}
}

// waits is an observer that reports when a call begins to wait.
type waits chan struct{}

func (w waits) TraceStart(ctx context.Context, _ idem.TraceStartData) context.Context { return ctx }

func (w waits) TraceEvent(_ context.Context, d idem.TraceEventData) {
	if d.Event == idem.EventWaiting {
		w <- struct{}{}
	}
}

func (waits) TraceEnd(context.Context, idem.TraceEndData) {}

// Show has the last error of attempts with short pauses and of the function. It is sealed where
// values are.
func TestShow_LastError(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idem.Option{"plain": nil, "sealed": {sealerOf(7)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			bank500 := errors.New("the bank answers 500")
			answers := make(chan error)
			policy := operation.Keyed(time.Hour).WithBackoff(time.Millisecond, time.Millisecond).WithMaxAttempts(3)
			d := define(func(op *operation.Op) error {
				_, err := operation.Call(op, "charge", policy, func(context.Context, string) (int, error) { return 0, <-answers })
				return err
			})
			ended := s.goDo(t.Context(), d, opts...)
			answers <- bank500
			eventually(t, "the error to be stored", func() bool { return s.count(`select count(*) from idem.operations where error_attempt = 1`) == 1 })
			status, err := operation.Show(t.Context(), s.pool, s.operationID(), opts...)
			if e := status.LastError; err != nil || e == nil || e.Step != "charge" || e.Attempt != 1 || e.Text != bank500.Error() || e.At.IsZero() || e.NextAt.IsZero() {
				t.Errorf("%+v, %v", e, err)
			}
			answers <- bank500
			answers <- bank500
			want(t, operation.ErrParked)(nil, await(t, "the end", ended).err)
			status, err = operation.Show(t.Context(), s.pool, s.operationID(), opts...)
			if e := status.LastError; err != nil || e == nil || e.Attempt != 3 || e.Text != bank500.Error() || status.Reason != operation.ReasonAttemptsExhausted {
				t.Errorf("%+v, %+v, %v", e, status, err)
			}
			stored := s.text(`select coalesce(reason_text, '') || encode(error_text, 'escape') from idem.operations`)
			if sealed := !strings.Contains(stored, "500"); sealed != (name == "sealed") {
				t.Errorf("stored is %s", stored)
			}
			if status, err := operation.Show(t.Context(), s.pool, s.operationID()); name == "sealed" && (err != nil || status.LastError.Text != "sealed") {
				t.Errorf("without a Sealer: %+v, %v", status.LastError, err)
			}
		})
	}
}

// A call that waits gets the outcome of the operation that it has waited for, even if the key is
// used again at once.
func TestDo_WaiterGetsTheOutcomeItHasWaitedFor(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	there := shopOn(t, s.dsn)
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	declines := true
	d := operation.Define("charge", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			begun <- struct{}{}
			<-goOn
			if declines {
				return 0, operation.Final(errDeclined)
			}
			return 1, nil
		})
		return created, err
	}, operation.WithErrors(errDeclined))
	do := func(s *shop) <-chan answer { return s.goDo(t.Context(), d, idem.WithWait(limit)) }
	ended := do(s)
	await(t, "the call", begun)
	proxy := pgtest.Proxy(t, s.dsn)
	waiter := s.through(proxy)
	met := proxy.Next(pgproxy.Answered, pgproxy.Contains("Claim"))
	waited := do(waiter)
	await(t, "the waiter to have looked", met)
	await(t, "the waiter to have looked again", proxy.Next(pgproxy.Answered, pgproxy.Contains("Claim")))
	trap := proxy.Arm(pgproxy.Before(pgproxy.Contains("Claim")), pgproxy.Freeze)
	stands := await(t, "the waiter to stand still", trap.Fired())
	goOn <- struct{}{}
	want(t, errDeclined)(nil, await(t, "the first", ended).err)
	declines = false
	again := do(there) // the key is used again at once
	await(t, "the second call", begun)
	goOn <- struct{}{}
	must(t, await(t, "the second", again).err)
	stands.Conn.Resume()
	want(t, errDeclined)(nil, await(t, "the waiter", waited).err)
}

// No operation has a key that idem.Do has answered.
func TestStart_OfAKeyThatAPlainDoHasAnswered(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	want(t, nil)(idem.Do(t.Context(), s.pool, scope, "k", hashA, func(pgx.Tx) (idem.Response, error) { return created, nil }))
	d := operation.Define("plain", func(op *operation.Op, _ string) (idem.Response, error) { return created, nil })
	if id, err := s.start(d, "k", hashA, true); !errors.Is(err, operation.ErrUnknownOperation) {
		t.Errorf("%q, %v", id, err)
	}
}

// A Once call is made although the commit before it was not acknowledged: this process knows that
// no attempt was sent.
func TestCall_OnceBehindALostAcknowledgement(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"of the first commit": true, "of a later commit": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			proxy := pgtest.Proxy(t, s.dsn)
			behind := s.through(proxy)
			made := 0
			var trap *pgproxy.Trap
			d := operation.Define("once", func(op *operation.Op, _ string) (idem.Response, error) {
				if !first {
					_ = outsideStep(op, "before")
				}
				if trap == nil {
					trap = proxy.Arm(pgproxy.AfterAnswer(pgproxy.IsCommit, "COMMIT"), pgproxy.Reset)
				}
				_, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (int, error) {
					made++
					return 1, nil
				})
				return created, err
			})
			if _, err := d.Do(t.Context(), behind.pool, scope, "k", hashA, "", idem.WithWait(limit)); err != nil || made != 1 {
				t.Errorf("made %d times, %v", made, err)
			}
			await(t, "the loss", trap.Fired())
		})
	}
}

// The first failing attempt is logged, without the key and the body.
func TestWorker_LogsFailingAttempts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log bytes.Buffer // written to by one goroutine at a time
	tries := 0
	d := operation.Define("charge", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour).WithBackoff(time.Millisecond, time.Millisecond), func(context.Context, string) (int, error) {
			if tries++; tries < 6 {
				return 0, errors.New("the bank answers 500")
			}
			return 1, nil
		})
		return created, err
	})
	want(t, nil)(s.start(d, "secret key", hashA, true))
	stop := s.workWith(t, operation.WorkerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}, d)
	eventually(t, "the operation to end", s.completed(1))
	stop() // so that nothing more is logged
	text := log.String()
	if n := strings.Count(text, "the bank answers 500"); n != 3 || strings.Contains(text, "secret key") { // attempts 1, 2 and 4
		t.Errorf("%d lines:\n%s", n, text)
	}
}

// A Final error and a Cancel end an operation: a Worker does not warn that its run has not.
func TestWorker_DoesNotWarnOfAnOperationThatHasEnded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log bytes.Buffer
	d := define(func(op *operation.Op) error { return first(outsideStep(op, "check"), operation.Final(errDeclined)) })
	canceled := start(s, d, "")
	must(t, operation.Cancel(t.Context(), s.pool, canceled))
	s.startAll(d, "another")
	stop := s.workWith(t, operation.WorkerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}, d)
	eventually(t, "the operations to end", func() bool { return s.count(`select count(*) from idem.operations where state = 'undone'`) == 2 })
	stop() // so that nothing more is logged
	if text := log.String(); strings.Contains(text, "has not ended") {
		t.Error(text)
	}
}
