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

// script answers the attempts of a call in order. nil is a success, and so is every attempt after
// the last answer.
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

// An attempt that was not sent does not settle earlier attempts. An answer settles them.
func TestCall_OutcomeOfAttempts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	keyed, once := operation.Keyed(time.Hour), operation.Once
	for name, test := range map[string]struct {
		policy  operation.Policy
		answers []error
		calls   int
		want    string // the value, the text of the error that the function gets, or "parked"
	}{
		"it is sent at last":                        {keyed, []error{unsent, unsent}, 3, "done"},
		"asked, it is sent at last":                 {askedOf(false, errors.New("it is not asked about")), []error{unsent, unsent}, 3, "done"},
		"once, sent and unheard":                    {once, []error{unsent, unheard}, 2, "parked"},
		"once, sent and refused":                    {once, []error{unsent, refused}, 2, errDeclined.Error()},
		"it never will be sent":                     {keyed, []error{never}, 1, errAmount.Error()},
		"once, it never will be sent":               {once, []error{unsent, never}, 2, errAmount.Error()},
		"no attempt was sent":                       {keyed.WithMaxAttempts(2), []error{unsent, unsent}, 2, "has not happened: " + errDial.Error()},
		"unheard, then refused":                     {keyed, []error{unheard, refused}, 2, errDeclined.Error()},
		"unheard, then not sent":                    {keyed, []error{unheard, unsent, never, unsent}, 5, "done"},
		"unheard, then not sent, then refused":      {keyed, []error{unheard, never, refused}, 3, errDeclined.Error()},
		"unheard, then never sent, for good":        {keyed.WithMaxAttempts(3), []error{unheard, never, never}, 3, "parked"},
		"asked, unheard, and it has not happened":   {askedOf(false, nil), []error{unheard, never}, 2, errAmount.Error()},
		"asked, unheard, and it has happened":       {askedOf(true, nil), []error{unheard, never}, 1, "found"},
		"asked, unheard, and it was refused":        {askedOf(false, refused), []error{unheard}, 1, errDeclined.Error()},
		"asked, unheard, and the question not sent": {askedOf(false, never).WithMaxAttempts(3), []error{unheard}, 1, "parked"},
		"asked, no answer, and it is made again":    {askedOf(false, nil), []error{errTimeout}, 2, "done"},
		"asked after the last attempt: it has not":  {askedOf(false, nil).WithMaxAttempts(1), []error{unheard}, 1, "and has not happened"},
		"asked after the last attempt: it has":      {askedOf(true, nil).WithMaxAttempts(1), []error{unheard}, 1, "found"},
		"unheard, and no further attempt":           {keyed.WithMaxAttempts(1), []error{unheard}, 1, "parked"},
		"once, an error without a meaning":          {once, []error{errTimeout}, 1, "parked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCalling(quickly(test.policy), script(test.answers...))
			res, err := c.Do(t.Context(), s.pool, scope, name, hashA, "")
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

// A Once call is not in doubt if no attempt was sent.
func TestCall_UnsentOnceGoesOnInTheNextRun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newCalling(operation.Once.WithBackoff(100*time.Hour, 100*time.Hour), script(unsent, unsent))
	for range 2 {
		want(t, idem.ErrInProgress)(c.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)))
		for range 5 {
			s.elapse()
		}
	}
	s.wantCount(2, `select tries from idem.operations`)
	wantBody(t, "done")(c.Do(t.Context(), s.pool, scope, "k", hashA, ""))
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
		_, err = c.Do(ctx, s.pool, scope, "k", hashA, "")
	}
	if !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), "3 attempts") || len(c.keys) != 3 {
		t.Errorf("%v after %d attempts", err, len(c.keys))
	}
}

// An attempt whose context has ended, because of its timeout or without a beat, has no answer, even
// if the program wraps its error in a Final.
func TestPolicy_EndedAttemptLeavesDoubt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	find := operation.Asked(func(context.Context, string) (string, bool, error) { return "", false, nil })
	for limitName, limited := range map[string]struct {
		by    func(operation.Policy) operation.Policy
		cause error
	}{
		"timeout":   {func(p operation.Policy) operation.Policy { return p.WithAttemptTimeout(time.Millisecond) }, context.DeadlineExceeded},
		"heartbeat": {func(p operation.Policy) operation.Policy { return p.WithHeartbeat(10 * time.Millisecond) }, operation.ErrNoBeat},
	} {
		for name, policy := range map[string]operation.Policy{"Keyed": operation.Keyed(time.Hour), "Asked": find, "Once": operation.Once} {
			for wrapName, wrap := range map[string]func(error) error{"as it is": func(err error) error { return err }, "Final": operation.Final} {
				t.Run(fmt.Sprint(limitName, ", ", name, ", ", wrapName), func(t *testing.T) {
					t.Parallel()
					attempts := 0
					d := define(func(op *operation.Op) error {
						_, err := operation.Call(op, "call", limited.by(policy), func(ctx context.Context, _ string) (string, error) {
							if attempts++; attempts > 1 {
								return "done", nil
							}
							<-ctx.Done()
							if cause := context.Cause(ctx); !errors.Is(cause, limited.cause) {
								t.Errorf("the cause is %v", cause)
							}
							return "", wrap(ctx.Err())
						})
						return err
					})
					_, err := d.Do(t.Context(), s.pool, scope, t.Name(), hashA, "")
					if parks := name == "Once"; parks != errors.Is(err, operation.ErrParked) || !parks && (err != nil || attempts != 2) {
						t.Errorf("%v after %d attempts", err, attempts)
					}
				})
			}
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
		"WithHeartbeat(0s)":      keyed.WithHeartbeat(0),
		"Keyed(0s)":              operation.Keyed(0),
		"Asked":                  operation.Asked[string](nil),
		"policy":                 {},
	} {
		c := newCalling(policy, script())
		undo := define(func(op *operation.Op) error {
			_, err := operation.Tx(op, "do", write("do"), operation.UndoCall(policy, func(context.Context, string, string) error { return nil }))
			return err
		})
		for kind, d := range map[string]*operation.Definition[string]{"call": c.Definition, "undo": undo} {
			if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); err == nil || !strings.Contains(err.Error(), want) || len(c.keys) != 0 {
				t.Errorf("%s: %v, want %q, after %d calls", kind, err, want, len(c.keys))
			}
		}
	}
	d := operation.Define("nil", func(*operation.Op, string) (idem.Response, error) { return created, nil }, nil)
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); err == nil || !strings.Contains(err.Error(), "nil Option") {
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
	if parkedAt(t, "charge", operation.ReasonAttemptsExhausted)(s.do(d)); calls != 2 {
		t.Errorf("%d attempts", calls)
	}
}

// calling is an operation of one call. It records the keys of the attempts.
type calling struct {
	*operation.Definition[string]
	keys []string
	err  error // what the call returned
}

func newCalling(policy operation.Policy, fn func(attempt int, key string) (string, error)) *calling {
	c := &calling{}
	c.Definition = operation.Define("calling", func(op *operation.Op, _ string) (idem.Response, error) {
		value, err := operation.Call(op, "call", policy, func(_ context.Context, key string) (string, error) {
			c.keys = append(c.keys, key)
			return fn(len(c.keys), key)
		})
		c.err = err
		return idem.Response{Status: 200, Body: []byte(value)}, err
	})
	return c
}

var errTimeout = errors.New("the gateway did not answer")

type refusal struct{ Code int }

func (r *refusal) Error() string { return fmt.Sprint("refused with ", r.Code) }

func TestCall_OnceParksAfterAKill(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Once)
	answers := s.goDo(t.Context(), b.Definition, idem.WithWait(0))
	await(t, "the call", b.begun)
	s.exec(`update idem.operations set epoch = epoch + 1, owner = null`) // as if it were dead
	_, err := b.Do(t.Context(), shopOn(t, s.dsn).pool, scope, "k", hashA, "")
	if !errors.Is(err, operation.ErrParked) || b.calls.Load() != 1 {
		t.Errorf("after %d calls: %v", b.calls.Load(), err)
	}
	b.release <- nil
	if a := await(t, "the first caller", answers); !errors.Is(a.err, operation.ErrParked) && !errors.Is(a.err, idem.ErrInProgress) {
		t.Error(a.err)
	}
}

func TestCall_KeyedParksAfterItsWindow(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newCalling(operation.Keyed(time.Hour), script(errTimeout))
	ctx, leave := context.WithCancel(t.Context())
	first := newCalling(operation.Keyed(time.Hour), func(int, string) (string, error) { leave(); return "", errTimeout })
	want(t, context.Canceled)(first.Do(ctx, s.pool, scope, "k", hashA, ""))
	s.exec(`update idem.operations set since = since - interval '2 hours', kind = 'call', step = 'call', seq = 1`)
	for range 2 {
		parkedAt(t, "call", operation.ReasonCallInDoubt)(s.do(c.Definition, idem.WithWait(0)))
	}
	if len(c.keys) != 0 {
		t.Errorf("%d calls", len(c.keys))
	}
}

func TestWithDeadline_EndsACall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls := 0
	d := define(func(op *operation.Op) error {
		_, err := operation.Call(op, "call", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			calls++
			return 0, errTimeout
		})
		return err
	}, operation.WithDeadline(time.Nanosecond))
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, operation.ErrParked) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}
