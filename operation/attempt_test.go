package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

var (
	errDial   = errors.New("dial tcp: connection refused")
	errAmount = errors.New("the amount is negative")
	unsent    = operation.NotSent(errDial)
	never     = operation.Final(operation.NotSent(errAmount))
	unheard   = operation.Unknown(errTimeout)
	refused   = operation.Final(fmt.Errorf("the bank says: %w", errDeclined))
)

// script answers the attempts of a call one after the other: nil, and every attempt behind the last, is a success.
func script(answers ...error) func(int, string) (string, error) {
	return func(attempt int, _ string) (string, error) {
		if attempt > len(answers) || answers[attempt-1] == nil {
			return "done", nil
		}
		return "", answers[attempt-1]
	}
}

func quickly(p operation.Policy) operation.Policy {
	return p.WithBackoff(time.Millisecond, time.Millisecond)
}

func askedOf(done bool, err error) operation.Policy {
	return operation.Asked(func(context.Context, string) (string, bool, error) { return "found", done, err })
}

// An attempt that was not sent does not settle the attempts before it. An answer does.
func TestCall_OutcomeOfAttempts(t *testing.T) {
	t.Parallel()
	keyed, once := operation.Keyed(time.Hour), operation.Once
	for name, test := range map[string]struct {
		policy  operation.Policy
		answers []error
		calls   int
		want    string // the value, the text of the error that the function gets, or "parked"
	}{
		"it is sent at last":                        {keyed, []error{unsent, unsent}, 3, "done"},
		"once, it is sent at last":                  {once, []error{unsent, unsent, unsent}, 4, "done"},
		"asked, it is sent at last":                 {askedOf(false, errors.New("it is not asked about")), []error{unsent, unsent}, 3, "done"},
		"once, sent and unheard":                    {once, []error{unsent, unheard}, 2, "parked"},
		"once, sent and refused":                    {once, []error{unsent, refused}, 2, errDeclined.Error()},
		"it never will be sent":                     {keyed, []error{never}, 1, errAmount.Error()},
		"once, it never will be sent":               {once, []error{unsent, never}, 2, errAmount.Error()},
		"not sent and final, the other way around":  {once, []error{operation.NotSent(operation.Final(errAmount))}, 1, errAmount.Error()},
		"no attempt was sent":                       {keyed.WithMaxAttempts(2), []error{unsent, unsent}, 2, "has not happened: " + errDial.Error()},
		"once, no attempt was sent":                 {once.WithMaxAttempts(2), []error{unsent, unsent}, 2, "has not happened: " + errDial.Error()},
		"unheard, then refused":                     {keyed, []error{unheard, refused}, 2, errDeclined.Error()},
		"unheard, then not sent":                    {keyed, []error{unheard, unsent, never, unsent}, 5, "done"},
		"unheard, then not sent, then refused":      {keyed, []error{unheard, never, refused}, 3, errDeclined.Error()},
		"unheard, then never sent, for good":        {keyed.WithMaxAttempts(3), []error{unheard, never, never}, 3, "parked"},
		"an error that says nothing, then never":    {keyed, []error{errDial, never}, 3, "done"},
		"asked, unheard, and it has not happened":   {askedOf(false, nil), []error{unheard, never}, 2, errAmount.Error()},
		"asked, unheard, and it has happened":       {askedOf(true, nil), []error{unheard, never}, 1, "found"},
		"asked, unheard, and it was refused":        {askedOf(false, refused), []error{unheard}, 1, errDeclined.Error()},
		"asked, unheard, and the question not sent": {askedOf(false, never).WithMaxAttempts(3), []error{unheard}, 1, "parked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			c := newCalling(quickly(test.policy), script(test.answers...))
			res, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			switch {
			case test.want == "done" || test.want == "found":
				if err != nil || string(res.Body) != test.want {
					t.Errorf("%s, %v; want %s", res.Body, err, test.want)
				}
			case test.want == "parked":
				if !errors.Is(err, operation.ErrParked) {
					t.Errorf("%s, %v; want that it parks", res.Body, err)
				}
			case !operation.IsFinal(c.err) || !strings.Contains(fmt.Sprint(c.err), test.want) || errors.Is(err, operation.ErrParked):
				t.Errorf("the function got %v, and the caller %v; want %s", c.err, err, test.want)
			}
			if len(c.keys) != test.calls {
				t.Errorf("%d calls, want %d", len(c.keys), test.calls)
			}
		})
	}
}

// The first attempt charges the card. The second is not sent, and its Final error is no answer of the bank.
func TestCall_LostAnswerOutlivesAnUnsentAttempt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newCalling(quickly(operation.Keyed(time.Hour)), func(attempt int, key string) (string, error) {
		switch attempt {
		case 1:
			_, _ = s.bank.charge(t.Context(), key)
			return "", operation.Unknown(errTimeout)
		case 2:
			return "", operation.Final(operation.NotSent(errDial))
		}
		return s.bank.charge(t.Context(), key)
	})
	if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || c.err != nil {
		t.Errorf("the card is charged, the function got %v, and the caller %v", c.err, err)
	}
	if n, asked := s.bank.keys(); n != 1 || asked != 2 {
		t.Errorf("the bank saw %d keys in %d requests", n, asked)
	}
}

// A killed process may have sent the attempt that it had begun.
func TestCall_UnsentAttemptAfterAKill(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(time.Hour))
	answers := b.call(t.Context(), s, idem.WithWait(limit))
	await(t, "the call", b.begun)
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set epoch = epoch + 1, owner = null`); err != nil { // as if it were dead
		t.Fatal(err)
	}
	next := newBlocked(s, operation.Keyed(time.Hour))
	next.release <- never
	next.release <- nil
	if a := await(t, "the next caller", next.call(t.Context(), shopOn(t, s.dsn))); a.err != nil || next.calls.Load() != 2 {
		t.Errorf("%v after %d attempts", a.err, next.calls.Load())
	}
	b.release <- nil
	await(t, "the first caller", answers)
}

// A Once call of which no attempt was sent is not in doubt.
func TestCall_UnsentOnceGoesOnInTheNextRun(t *testing.T) {
	t.Parallel()
	t.Run("after a long pause", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := newCalling(operation.Once.WithBackoff(100*time.Hour, 100*time.Hour), script(unsent, unsent))
		for range 2 {
			if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
				t.Fatal(err)
			}
			for range 5 {
				s.elapse()
			}
		}
		if tries := s.count(`select tries from idem.operations`); tries != 2 {
			t.Errorf("%d attempts are recorded, want 2", tries)
		}
		if res, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || string(res.Body) != "done" {
			t.Error(res, err)
		}
	})
	t.Run("after its caller has left", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		ctx, leave := context.WithCancel(t.Context())
		c := newCalling(operation.Once, func(attempt int, _ string) (string, error) {
			if attempt == 1 {
				leave()
				return "", unsent
			}
			return "done", nil
		})
		if _, err := c.Do(ctx, s.pool, scope, "k", hashA, 0); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if res, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || string(res.Body) != "done" {
			t.Error(res, err)
		}
	})
	t.Run("not after Cancel", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := newCalling(operation.Once.WithBackoff(100*time.Hour, 100*time.Hour), script(unsent))
		if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Fatal(err)
		}
		if err := operation.Cancel(t.Context(), s.pool, s.text(`select id::text from idem.operations`)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrCanceled) || len(c.keys) != 1 {
			t.Errorf("%v after %d calls", err, len(c.keys))
		}
	})
}

func TestPolicy_WithMaxAttemptsCountsAcrossCallers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var leave context.CancelFunc
	c := newCalling(operation.Keyed(time.Hour).WithMaxAttempts(3), func(int, string) (string, error) { leave(); return "", errTimeout })
	var err error
	for range 5 {
		var ctx context.Context
		ctx, leave = context.WithCancel(t.Context())
		defer leave()
		_, err = c.Do(ctx, s.pool, scope, "k", hashA, 0)
	}
	if !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), "3 attempts") || len(c.keys) != 3 {
		t.Errorf("%v after %d attempts", err, len(c.keys))
	}
}

// An attempt whose context has ended has no answer, whatever its error is wrapped in.
func TestPolicy_WithAttemptTimeoutLeavesDoubt(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(error) error{
		"as it is": func(err error) error { return err }, "unknown": operation.Unknown, "final": operation.Final,
		"final, by its text": func(err error) error { return operation.Final(fmt.Errorf("the bank is away: %v", err)) },
	} {
		for policy, parks := range map[*operation.Policy]bool{new(operation.Keyed(time.Hour)): false, new(operation.Once): true} {
			t.Run(fmt.Sprint(name, ", parks: ", parks), func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				calls := 0
				d := define(func(op *operation.Op) error {
					_, err := operation.Call(op, "call", policy.WithAttemptTimeout(time.Millisecond), func(ctx context.Context, _ string) (int, error) {
						if calls++; calls > 1 {
							return 1, nil
						}
						<-ctx.Done()
						return 0, wrap(ctx.Err())
					})
					return err
				})
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
				if !parks && (err != nil || calls != 2) || parks && (!errors.Is(err, operation.ErrParked) || calls != 1) {
					t.Errorf("%v after %d attempts", err, calls)
				}
			})
		}
	}
}

func TestPolicy_RefusesInvalidValues(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	keyed := operation.Keyed(time.Hour)
	for want, policy := range map[string]operation.Policy{
		"WithMaxAttempts(0)":     keyed.WithMaxAttempts(0),
		"WithAttemptTimeout(0s)": keyed.WithAttemptTimeout(0),
		"WithBackoff(0s, 1s)":    keyed.WithBackoff(0, time.Second),
		"WithBackoff(2s, 1s)":    keyed.WithBackoff(2*time.Second, time.Second),
		"window of Keyed":        keyed.WithAttemptTimeout(time.Hour),
	} {
		c := newCalling(policy, script())
		undo := define(func(op *operation.Op) error {
			_, err := operation.Tx(op, "do", write("do"), operation.UndoCall(policy, func(context.Context, string, string) error { return nil }))
			return err
		})
		for kind, d := range map[string]*operation.Definition[int]{"call": c.Definition, "undo": undo} {
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err == nil || !strings.Contains(err.Error(), want) || len(c.keys) != 0 {
				t.Errorf("%s: %v, want %q, after %d calls", kind, err, want, len(c.keys))
			}
		}
	}
	d := operation.Define("nil", func(*operation.Op, int) (idem.Response, error) { return created, nil }, nil)
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err == nil || !strings.Contains(err.Error(), "nil Option") {
		t.Errorf("a nil Option of a definition: %v", err)
	}
}

func TestUndoCall_FollowsItsPolicy(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls := 0
	d := define(func(op *operation.Op) error {
		policy := quickly(operation.Keyed(time.Hour)).WithMaxAttempts(2).WithAttemptTimeout(time.Minute)
		_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge, operation.UndoCall(policy, func(ctx context.Context, _, _ string) error {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the attempt has no timeout")
			}
			calls++
			return errTimeout
		}))
		return errors.Join(err, idem.Reject(declined))
	})
	_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
	if parked := (*operation.ParkedError)(nil); !errors.As(err, &parked) || parked.Reason != operation.ReasonAttemptsExhausted || calls != 2 {
		t.Errorf("%v after %d attempts", err, calls)
	}
}
