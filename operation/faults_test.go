package operation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lab/pgproxy"
	"github.com/idem-go/idem/lab/pgtest"
	"github.com/idem-go/idem/operation"
	"github.com/idem-go/idem/seal"
)

// A person who resolves a call with a rejection gives the function that rejection: it is the answer of the key.
func TestResolve_RefusedKeepsTheRejection(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("charge", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Once, func(context.Context, string) (int, error) { return 0, errors.New("the answer is lost") })
		return created, err
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	if err := operation.Resolve(t.Context(), s.pool, s.only(), operation.Refused(idem.Reject(declined))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
		if err != nil || !res.Rejected || res.Status != declined.Status || !bytes.Equal(res.Body, declined.Body) {
			t.Errorf("%+v, %v", res, err)
		}
	}
}

// NotHappened ends the call: the function gets a Final error, and may go on another way.
func TestResolve_NotHappenedEndsTheCall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var seen error
	made := 0
	d := operation.Define("charge", func(op *operation.Op, _ string) (idem.Response, error) {
		_, seen = operation.Call(op, "charge", operation.Once, func(context.Context, string) (int, error) {
			made++
			return 0, errors.New("the answer is lost")
		})
		if errors.Is(seen, operation.ErrNotHappened) {
			return created, nil
		}
		return idem.Response{}, seen
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	if err := operation.Resolve(t.Context(), s.pool, s.only(), operation.NotHappened); err != nil {
		t.Fatal(err)
	}
	res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
	if err != nil || res.Status != created.Status || !operation.IsFinal(seen) || made != 1 {
		t.Errorf("%+v, %v; the function has seen %v; made %d times", res, err, seen, made)
	}
}

// The last error is there for the person on call: of attempts whose pauses are short, and of the function; sealed where values are.
func TestShow_LastError(t *testing.T) {
	t.Parallel()
	sealer := idem.WithSealer(seal.New(seal.Keys{Primary: "k1", Secrets: map[string][]byte{"k1": bytes.Repeat([]byte{7}, 32)}}))
	for name, opts := range map[string][]idem.Option{"plain": nil, "sealed": {sealer}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			bank500 := errors.New("the bank answers 500")
			answers := make(chan error)
			policy := operation.Keyed(time.Hour).WithBackoff(time.Millisecond, time.Millisecond).WithMaxAttempts(3)
			d := operation.Define("charge", func(op *operation.Op, _ string) (idem.Response, error) {
				_, err := operation.Call(op, "charge", policy, func(context.Context, string) (int, error) { return 0, <-answers })
				return created, err
			})
			ended := make(chan error, 1)
			go func() {
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", opts...)
				ended <- err
			}()
			answers <- bank500
			eventually(t, "the error to be stored", func() bool { return s.count(`select count(*) from idem.operations where error_attempt = 1`) == 1 })
			status, err := operation.Show(t.Context(), s.pool, s.only(), opts...)
			if e := status.LastError; err != nil || e == nil || e.Step != "charge" || e.Attempt != 1 || e.Text != bank500.Error() || e.At.IsZero() || e.NextAt.IsZero() {
				t.Errorf("%+v, %v", e, err)
			}
			answers <- bank500
			answers <- bank500
			if err := await(t, "the end", ended); !errors.Is(err, operation.ErrParked) {
				t.Fatal(err)
			}
			status, err = operation.Show(t.Context(), s.pool, s.only(), opts...)
			if e := status.LastError; err != nil || e == nil || e.Attempt != 3 || e.Text != bank500.Error() || status.Reason != operation.ReasonAttemptsExhausted {
				t.Errorf("%+v, %+v, %v", e, status, err)
			}
			stored := s.text(`select coalesce(reason_text, '') || encode(error_text, 'escape') from idem.operations`)
			if sealed := !strings.Contains(stored, "500"); sealed != (name == "sealed") {
				t.Errorf("stored is %s", stored)
			}
			if status, err := operation.Show(t.Context(), s.pool, s.only()); name == "sealed" && (err != nil || status.LastError.Text != "sealed") {
				t.Errorf("without a Sealer: %+v, %v", status.LastError, err)
			}
		})
	}
}

// A call that waits gets the outcome of the operation that it has waited for, however soon the key is used again.
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
	ended, waited := make(chan error, 2), make(chan error, 1)
	do := func(s *shop, ended chan<- error) {
		_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit))
		ended <- err
	}
	go do(s, ended)
	await(t, "the call", begun)
	proxy := pgtest.Proxy(t, s.dsn)
	waiter := s.through(proxy)
	met := proxy.Next(pgproxy.Answered, pgproxy.Contains("Claim"))
	go do(waiter, waited)
	await(t, "the waiter to have looked", met)
	await(t, "the waiter to have looked again", proxy.Next(pgproxy.Answered, pgproxy.Contains("Claim")))
	trap := proxy.Arm(pgproxy.Before(pgproxy.Contains("Claim")), pgproxy.Freeze)
	stands := await(t, "the waiter to stand still", trap.Fired())
	goOn <- struct{}{}
	if err := await(t, "the first", ended); !errors.Is(err, errDeclined) {
		t.Fatal(err)
	}
	declines = false
	go do(there, ended) // the key is used again at once
	await(t, "the second call", begun)
	goOn <- struct{}{}
	if err := await(t, "the second", ended); err != nil {
		t.Fatal(err)
	}
	stands.Conn.Resume()
	if err := await(t, "the waiter", waited); !errors.Is(err, errDeclined) {
		t.Errorf("the waiter got %v", err)
	}
}

// A key that a plain Do has answered belongs to no operation.
func TestStart_OfAKeyThatAPlainDoHasAnswered(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	if _, err := idem.Do(t.Context(), s.pool, scope, "k", hashA, func(pgx.Tx) (idem.Response, error) { return created, nil }); err != nil {
		t.Fatal(err)
	}
	d := operation.Define("plain", func(op *operation.Op, _ string) (idem.Response, error) { return created, nil })
	if id, err := s.start(d, "k", hashA, true); !errors.Is(err, operation.ErrUnknownOperation) {
		t.Errorf("%q, %v", id, err)
	}
	first, err := s.start(d, "other", hashA, true)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.start(d, "other", hashA, true); err != nil || again != first {
		t.Errorf("%q, %v, want %q", again, err, first)
	}
}

// The end of a context is the error of Wait, and so is its cause.
func TestWait_EndOfItsContext(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("sleeps", func(op *operation.Op, _ string) (idem.Response, error) {
		return created, operation.Sleep(op, "nap", time.Hour)
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	closing := errors.New("closing time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, closing)
	defer cancel()
	if _, err := operation.Wait(ctx, s.pool, s.only()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, closing) {
		t.Error(err)
	}
}

// A suspect whose other side hangs does not keep other suspects from beginning.
func TestWorker_SuspectThatHangsLeavesItsTurn(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var once sync.Once
	hangs := make(chan struct{})
	d := operation.Define("suspect", func(op *operation.Op, _ string) (idem.Response, error) {
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), func(ctx context.Context, _ string) (int, error) {
			first := false
			once.Do(func() { first = true })
			if first {
				select {
				case <-hangs:
				case <-ctx.Done():
				}
			}
			return 1, ctx.Err()
		})
		return created, err
	})
	s.suspects(d, 3, 3)
	s.workBlindly(4, d)
	eventually(t, "the others to end", s.completed(2))
	close(hangs)
	eventually(t, "all to end", s.completed(3))
}

// A call that is Once is made, although the answer of the commit before it was lost: this process knows that no attempt was sent.
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
					if err := outsideStep(op, "before"); err != nil {
						return idem.Response{}, err
					}
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

// The first failing attempt is in the log, with no key and no body.
func TestWorker_LogsFailingAttempts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var log lockedBuffer
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
	if _, err := s.start(d, "secret key", hashA, true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- operation.NewWorker(s.pool, operation.WorkerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}, d).Run(ctx)
	}()
	eventually(t, "the operation to end", s.completed(1))
	cancel()
	if err := await(t, "the worker to end", ended); err != nil {
		t.Error(err)
	}
	text := log.String()
	if n := strings.Count(text, "the bank answers 500"); n != 3 || strings.Contains(text, "secret key") { // attempts 1, 2 and 4
		t.Errorf("%d lines:\n%s", n, text)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A Tx and a Call of one name have an undo each, and both run.
func TestUndo_StepsOfOneName(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("twice", func(op *operation.Op, _ string) (idem.Response, error) {
		b := book{s}
		return created, first(b.tx(op, "order", "unorder"), b.call(op, "order", "return"), errRejected)
	})
	if res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); err != nil || !res.Rejected {
		t.Error(res, err)
	}
	if got := fmt.Sprint(s.did()); got != "[order order return unorder]" {
		t.Error(got)
	}
}

// Replay says of every change of the code what a process that goes on with it does.
func TestReplay_SaysWhatAProcessDoes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	step := func(op *operation.Op, code byte) error {
		b := book{s}
		switch code {
		case 't':
			return b.tx(op, "reserve", "release")
		case 'T':
			return b.tx(op, "reserve more", "release more")
		case 'c':
			return b.call(op, "charge", "refund")
		case 'C':
			return b.call(op, "charge")
		case 'd':
			if err := b.declines(op, "charge"); !errors.Is(err, errDeclined) {
				return err
			}
			return nil
		case 's':
			return operation.Sleep(op, "nap", time.Hour)
		case 'p':
			calls := operation.Parallel(op)
			for _, name := range []string{"left", "right"} {
				operation.Go(calls, name, operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return 1, nil })
			}
			return calls.Wait()
		case 'm':
			op.Changed("mark")
			return nil
		case 'r':
			return errRejected
		}
		return errors.New("no such step")
	}
	program := func(code string) *operation.Definition[string] {
		return operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
			for i := range len(code) {
				if err := step(op, code[i]); err != nil {
					return idem.Response{}, err
				}
			}
			return created, nil
		})
	}
	parks := 0
	for _, before := range []string{"cs", "tcs", "cps", "pts", "dts", "cmts", "Cs"} {
		for _, after := range changesOf(before) {
			for _, canceled := range []bool{false, true} {
				key := fmt.Sprint(before, "/", after, "/", canceled)
				if _, err := program(before).Do(t.Context(), s.pool, scope, key, hashA, "", idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
					t.Fatal(key, err)
				}
				id := s.text(`select id::text from idem.operations where key = $1`, key)
				if canceled {
					if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
						t.Fatal(err)
					}
				} else {
					s.elapse()
				}
				file, err := operation.History(t.Context(), s.pool, id)
				if err != nil {
					t.Fatal(err)
				}
				said := operation.Replay(t.Context(), file, program(after))
				_, err = program(after).Do(t.Context(), s.pool, scope, key, hashA, "", idem.WithWait(0))
				if parked := errors.Is(err, operation.ErrParked); parked != errors.Is(said, operation.ErrParked) {
					t.Errorf("%s: Replay says %v, and the process %v", key, said, err)
				} else if parked {
					parks++
				}
			}
		}
	}
	if parks == 0 {
		t.Error("no change has parked anything")
	}
}

// changesOf returns programs that differ in one step: left out, added, exchanged.
func changesOf(code string) []string {
	all := []string{code}
	for i := range len(code) {
		all = append(all, code[:i]+code[i+1:])
		for _, c := range "TcCr" {
			all = append(all, code[:i]+string(c)+code[i:], code[:i]+string(c)+code[i+1:])
		}
		if i > 0 {
			all = append(all, code[:i-1]+code[i:i+1]+code[i-1:i]+code[i+1:])
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
