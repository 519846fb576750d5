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

// script answers the attempts of a call one after the other. nil is a value, as is what comes behind the last.
func script(answers ...error) func(int, string) (string, error) {
	return func(attempt int, _ string) (string, error) {
		if attempt > len(answers) || answers[attempt-1] == nil {
			return "done", nil
		}
		return "", answers[attempt-1]
	}
}

func quickly(opts ...operation.CallOption) []operation.CallOption {
	return append(opts, operation.Pauses(time.Millisecond, time.Millisecond))
}

func askedOf(done bool, err error) operation.Safety {
	return operation.Asked(func(context.Context, string) (string, bool, error) { return "found", done, err })
}

// An attempt that has not left says nothing about one that has, and an answer says everything about it.
func TestAttemptThatWasNotSentSettlesNothing(t *testing.T) {
	t.Parallel()
	keyed, once := operation.Keyed(time.Hour), operation.Once
	for name, test := range map[string]struct {
		safety  operation.Safety
		answers []error
		opts    []operation.CallOption
		calls   int
		want    string // the value, what the function is told, or what the reason says
	}{
		"it is sent at last":                        {keyed, []error{unsent, unsent}, nil, 3, "done"},
		"once, it is sent at last":                  {once, []error{unsent, unsent, unsent}, nil, 4, "done"},
		"asked, it is sent at last":                 {askedOf(false, errors.New("it is not asked about")), []error{unsent, unsent}, nil, 3, "done"},
		"once, sent and unheard":                    {once, []error{unsent, unheard}, nil, 2, "not known"},
		"once, sent and refused":                    {once, []error{unsent, refused}, nil, 2, errDeclined.Error()},
		"it never will be sent":                     {keyed, []error{never}, nil, 1, errAmount.Error()},
		"once, it never will be sent":               {once, []error{unsent, never}, nil, 2, errAmount.Error()},
		"not sent and final, the other way around":  {once, []error{operation.NotSent(operation.Final(errAmount))}, nil, 1, errAmount.Error()},
		"no attempt was sent":                       {keyed, []error{unsent, unsent}, []operation.CallOption{operation.Attempts(2)}, 2, "has not happened: " + errDial.Error()},
		"once, no attempt was sent":                 {once, []error{unsent, unsent}, []operation.CallOption{operation.Attempts(2)}, 2, "has not happened: " + errDial.Error()},
		"unheard, then refused":                     {keyed, []error{unheard, refused}, nil, 2, errDeclined.Error()},
		"unheard, then not sent":                    {keyed, []error{unheard, unsent, never, unsent}, nil, 5, "done"},
		"unheard, then not sent, then refused":      {keyed, []error{unheard, never, refused}, nil, 3, errDeclined.Error()},
		"unheard, then never sent, for good":        {keyed, []error{unheard, never, never}, []operation.CallOption{operation.Attempts(3)}, 3, "not known"},
		"an error that says nothing, then never":    {keyed, []error{errDial, never}, nil, 3, "done"},
		"asked, unheard, and it has not happened":   {askedOf(false, nil), []error{unheard, never}, nil, 2, errAmount.Error()},
		"asked, unheard, and it has happened":       {askedOf(true, nil), []error{unheard, never}, nil, 1, "found"},
		"asked, unheard, and it was refused":        {askedOf(false, refused), []error{unheard}, nil, 1, errDeclined.Error()},
		"asked, unheard, and the question not sent": {askedOf(false, never), []error{unheard}, []operation.CallOption{operation.Attempts(3)}, 1, "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			c := newCalling(test.safety, script(test.answers...), quickly(test.opts...)...)
			res, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			switch {
			case test.want == "done" || test.want == "found":
				if err != nil || string(res.Body) != test.want {
					t.Errorf("%s, %v; want %s", res.Body, err, test.want)
				}
			case test.want == "not known":
				if !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s, %v; want that it parks", res.Body, err)
				}
			case !operation.IsFinal(c.err) || !strings.Contains(fmt.Sprint(c.err), test.want) || errors.Is(err, operation.ErrParked):
				t.Errorf("the function was told %v, and the caller %v; want %s", c.err, err, test.want)
			}
			if len(c.keys) != test.calls {
				t.Errorf("%d calls, want %d", len(c.keys), test.calls)
			}
		})
	}
}

// The one that charges is the first attempt. The second does not reach the bank, and knows nothing of it.
func TestChargeWhoseAnswerWasLostIsNotForgottenForAnAttemptThatWasNotSent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newCalling(operation.Keyed(time.Hour), func(attempt int, key string) (string, error) {
		switch attempt {
		case 1:
			_, _ = s.bank.charge(t.Context(), key)
			return "", operation.Unknown(errTimeout)
		case 2:
			return "", operation.Final(operation.NotSent(errDial))
		}
		return s.bank.charge(t.Context(), key)
	}, quickly()...)
	if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || c.err != nil {
		t.Errorf("it is charged, and the function was told %v, the caller %v", c.err, err)
	}
	if n, asked := s.bank.keys(); n != 1 || asked != 2 {
		t.Errorf("the bank saw %d keys in %d requests", n, asked)
	}
}

// A process that is gone may have sent what it had begun.
func TestAttemptThatWasNotSentSaysNothingOfThatOfAKilledProcess(t *testing.T) {
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

// What is Once and was not sent is not in doubt: the next process makes it.
func TestOnceThatWasNotSentIsMadeByTheNextProcess(t *testing.T) {
	t.Parallel()
	t.Run("after a long pause", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := newCalling(operation.Once, script(unsent, unsent), operation.Pauses(100*time.Hour, 100*time.Hour))
		for range 2 {
			if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
				t.Fatal(err)
			}
			for range 5 {
				s.elapse()
			}
		}
		if tries := s.count(`select tries from idem.operations`); tries != 2 {
			t.Errorf("%d attempts are on record, want 2", tries)
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
	t.Run("and is given up if it is not wanted any more", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		c := newCalling(operation.Once, script(unsent), operation.Pauses(100*time.Hour, 100*time.Hour))
		if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
			t.Fatal(err)
		}
		if err := operation.Cancel(t.Context(), s.pool, s.text(`select id::text from idem.operations`)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrCancelled) || len(c.keys) != 1 {
			t.Errorf("%v after %d calls", err, len(c.keys))
		}
	})
}

func TestAttemptsAreCountedAcrossCallersThatLeave(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var leave context.CancelFunc
	c := newCalling(operation.Keyed(time.Hour), func(int, string) (string, error) { leave(); return "", errTimeout }, operation.Attempts(3))
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

// A context that ends is no answer, whatever is made of its error.
func TestTimeoutOfAnAttemptIsAnAttemptWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(error) error{
		"as it is": func(err error) error { return err }, "unknown": operation.Unknown, "final": operation.Final,
		"final, by its text": func(err error) error { return operation.Final(fmt.Errorf("the bank is away: %v", err)) },
	} {
		for safety, want := range map[*operation.Safety]string{new(operation.Keyed(time.Hour)): "", new(operation.Once): "not known"} {
			t.Run(fmt.Sprint(name, ", parks: ", want != ""), func(t *testing.T) {
				t.Parallel()
				s := newShop(t)
				calls := 0
				d := define(func(op *operation.Op) error {
					_, err := operation.Call(op, "call", *safety, func(ctx context.Context, _ string) (int, error) {
						if calls++; calls > 1 {
							return 1, nil
						}
						<-ctx.Done()
						return 0, wrap(ctx.Err())
					}, operation.AttemptTimeout(time.Millisecond))
					return err
				})
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
				if want == "" && (err != nil || calls != 2) || want != "" && (!errors.Is(err, operation.ErrParked) || calls != 1) {
					t.Errorf("%v after %d attempts", err, calls)
				}
			})
		}
	}
}

func TestOptionsOfACallThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for want, opt := range map[string]operation.CallOption{
		"Attempts(0)":        operation.Attempts(0),
		"AttemptTimeout(0s)": operation.AttemptTimeout(0),
		"Pauses(0s, 1s)":     operation.Pauses(0, time.Second),
		"Pauses(2s, 1s)":     operation.Pauses(2*time.Second, time.Second),
		"window of Keyed":    operation.AttemptTimeout(time.Hour),
		"nil CallOption":     nil,
	} {
		c := newCalling(operation.Keyed(time.Hour), script(), opt)
		undo := define(func(op *operation.Op) error {
			return operation.Undo(op, "undo", operation.Keyed(time.Hour), func(context.Context, string) error { return nil }, opt)
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

func TestUndoTakesTheOptionsOfACall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls := 0
	d := define(func(op *operation.Op) error {
		if err := outsideStep(op, "charge"); err != nil {
			return err
		}
		err := operation.Undo(op, "refund", operation.Keyed(time.Hour), func(ctx context.Context, _ string) error {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the attempt has no timeout")
			}
			calls++
			return errTimeout
		}, quickly(operation.Attempts(2), operation.AttemptTimeout(time.Minute))...)
		return errors.Join(err, idem.Reject(declined))
	})
	_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
	if !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), "2 attempts") || calls != 2 {
		t.Errorf("%v after %d attempts", err, calls)
	}
}
