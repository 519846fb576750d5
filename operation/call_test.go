package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
	"github.com/idem-go/idem/operation"
)

// calling is an operation of one call. It records the keys of the attempts.
type calling struct {
	*operation.Definition[int]
	keys []string
	err  error // what the call returned
}

func newCalling(policy operation.Policy, fn func(attempt int, key string) (string, error)) *calling {
	c := &calling{}
	c.Definition = operation.Define("calling", func(op *operation.Op, _ int) (idem.Response, error) {
		value, err := operation.Call(op, "call", policy, func(_ context.Context, key string) (string, error) {
			c.keys = append(c.keys, key)
			return fn(len(c.keys), key)
		})
		c.err = err
		return idem.Response{Status: 200, Body: []byte(value)}, err
	})
	return c
}

// failFirst fails in the first attempts.
func failFirst(n int, err error) func(int, string) (string, error) {
	return func(attempt int, _ string) (string, error) {
		if attempt <= n {
			return "", err
		}
		return "done", nil
	}
}

var errTimeout = errors.New("the gateway did not answer")

func TestCall_KeyedRepeatsTheKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newCalling(operation.Keyed(time.Hour), failFirst(3, operation.Unknown(errTimeout)))
	if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if len(c.keys) != 4 || len(c.keys[0]) != 32 || strings.Trim(c.keys[0], "abcdefghijklmnopqrstuvwxyz234567") != "" {
		t.Errorf("keys %q", c.keys)
	}
	for _, key := range c.keys {
		if key != c.keys[0] {
			t.Errorf("keys %q", c.keys)
		}
	}
}

func TestCall_FinalErrorIsReplayed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var seen []string
	d := operation.Define("two banks", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "first", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			return 0, operation.Final(fmt.Errorf("%w: %w", errDeclined, &refusal{Code: 51}))
		})
		var r *refusal
		seen = append(seen, fmt.Sprint(err, errors.Is(err, errDeclined), errors.Is(err, errTimeout), errors.As(err, &r) && r.Code == 51, operation.IsFinal(err)))
		if _, err := operation.Call(op, "second", operation.Keyed(time.Hour), s.bank.charge); err != nil {
			return idem.Response{}, err
		}
		return created, operation.Sleep(op, "pause", 20*time.Hour)
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	want := "the card is declined: refused with 51 true false true true"
	if diff := cmp.Diff([]string{want, want}, seen); diff != "" {
		t.Errorf("(-want +seen):\n%s", diff)
	}
}

type refusal struct{ Code int }

func (r *refusal) Error() string { return fmt.Sprint("refused with ", r.Code) }

// parks fails the test unless the operation is parked at its call, for this reason.
func parks(t *testing.T, s *shop, c *calling, reason operation.Reason) {
	t.Helper()
	for range 2 {
		_, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
		var parked *operation.ParkedError
		if !errors.As(err, &parked) || parked.Reason != reason || parked.Step != "call" {
			t.Fatalf("%v, want %s", err, reason)
		}
	}
}

func TestCall_OnceIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"unknown": operation.Unknown(errTimeout), "any error": errTimeout} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			c := newCalling(operation.Once, failFirst(1, err))
			parks(t, s, c, operation.ReasonCallInDoubt)
			if len(c.keys) != 1 {
				t.Errorf("%d calls", len(c.keys))
			}
		})
	}
}

func TestCall_OnceParksAfterAKill(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Once)
	answers := b.call(t.Context(), s, idem.WithWait(0))
	await(t, "the call", b.begun)
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set epoch = epoch + 1, owner = null`); err != nil { // as if it were dead
		t.Fatal(err)
	}
	_, err := b.Do(t.Context(), shopOn(t, s.dsn).pool, scope, "k", hashA, 0)
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
	c := newCalling(operation.Keyed(time.Hour), failFirst(1, errTimeout))
	ctx, leave := context.WithCancel(t.Context())
	first := newCalling(operation.Keyed(time.Hour), func(int, string) (string, error) { leave(); return "", errTimeout })
	if _, err := first.Do(ctx, s.pool, scope, "k", hashA, 0); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := s.pool.Exec(t.Context(), `update idem.operations set since = since - interval '2 hours', kind = 'call', step = 'call', seq = 1`); err != nil {
		t.Fatal(err)
	}
	parks(t, s, c, operation.ReasonCallInDoubt)
	if len(c.keys) != 0 {
		t.Errorf("%d calls", len(c.keys))
	}
}

func TestCall_AskedRepeatsWhatHasNotHappened(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		find  func(int) (string, bool, error)
		calls int
		want  string
	}{
		{"it has happened", func(int) (string, bool, error) { return "found", true, nil }, 1, "found"},
		{"it has not", func(int) (string, bool, error) { return "", false, nil }, 2, "done"},
		{"it is unknown for a while", func(n int) (string, bool, error) {
			if n < 3 {
				return "", false, errTimeout
			}
			return "found", true, nil
		}, 1, "found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			asked := 0
			c := newCalling(operation.Asked(func(context.Context, string) (string, bool, error) {
				asked++
				return test.find(asked)
			}), failFirst(1, operation.Unknown(errTimeout)))
			res, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			if err != nil || string(res.Body) != test.want || len(c.keys) != test.calls {
				t.Errorf("%s after %d calls, %v; want %s after %d", res.Body, len(c.keys), err, test.want, test.calls)
			}
		})
	}
}

func TestPolicy_WithMaxAttempts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newCalling(operation.Keyed(time.Hour).WithMaxAttempts(2), failFirst(9, errTimeout))
	parks(t, s, c, operation.ReasonAttemptsExhausted)
	if len(c.keys) != 2 {
		t.Errorf("%d calls", len(c.keys))
	}
}

func TestWithDeadline_EndsACall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	calls := 0
	d := operation.Define("calling", func(op *operation.Op, _ int) (idem.Response, error) {
		_, err := operation.Call(op, "call", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
			calls++
			return 0, errTimeout
		})
		return created, err
	}, operation.WithDeadline(time.Nanosecond))
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestCall_NeedsAPolicy(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, policy := range []operation.Policy{{}, operation.Keyed(0), operation.Asked[string](nil)} {
		c := newCalling(policy, failFirst(0, nil))
		if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); err == nil || len(c.keys) != 0 {
			t.Errorf("%+v: %v after %d calls", policy, err, len(c.keys))
		}
	}
	if n := s.count(`select count(*) from idem.records`); n != 0 {
		t.Error("the key is not free")
	}
}

func TestCall_LongBackoffFreesTheCaller(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	b := newBlocked(s, operation.Keyed(100*time.Hour))
	for range 64 {
		select {
		case b.release <- errTimeout:
		default:
		}
	}
	if _, err := s.start(s.checkout(), "other", hashA, true); err != nil {
		t.Fatal(err)
	}
	answers := b.call(t.Context(), s, idem.WithWait(0))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case b.release <- errTimeout:
			case <-b.begun:
			case <-stop:
				return
			}
		}
	}()
	select {
	case a := <-answers:
		if !errors.Is(a.err, idem.ErrInProgress) || !s.isFree("call") {
			t.Errorf("the caller got %v", a.err)
		}
	case <-time.After(2 * limit):
		t.Fatal("the caller is not free")
	}
}

// TestCall_ExhaustedGoesToTheFunctionIfNotHappened: the function gets the last error only if the other side reports that the call has
// not happened. Otherwise the operation parks.
func TestCall_ExhaustedGoesToTheFunctionIfNotHappened(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		policy operation.Policy
		want   string // the response, or "parked"
	}{
		{"it has not happened", operation.Asked(func(context.Context, string) (string, bool, error) { return "", false, nil }), ""},
		{"it has", operation.Asked(func(context.Context, string) (string, bool, error) { return "found", true, nil }), "found"},
		{"the other side cannot say", operation.Asked(func(context.Context, string) (string, bool, error) { return "", false, errTimeout }), "parked"},
		{"no side can be asked", operation.Keyed(time.Hour), "parked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := s.trip(func(op *operation.Op) (idem.Response, error) {
				value, err := operation.Call(op, "seat", test.policy.WithMaxAttempts(1), func(context.Context, string) (string, error) { return "", errTimeout })
				return idem.Response{Status: 200, Body: []byte(value)}, err
			})
			res, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
			switch {
			case test.want == "":
				if !errors.Is(err, errTimeout) || !operation.IsFinal(err) {
					t.Errorf("got %v", err)
				}
				if diff := cmp.Diff([]string{"flight", "hotel", "cancel hotel", "refund", "cancel flight"}, s.did()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			case errors.Is(err, operation.ErrParked):
				if parked := (*operation.ParkedError)(nil); test.want != "parked" || !errors.As(err, &parked) || parked.Reason != operation.ReasonAttemptsExhausted {
					t.Errorf("got %v, want %q", err, test.want)
				}
			case err != nil || string(res.Body) != test.want:
				t.Errorf("got %q, %v, want %q", res.Body, err, test.want)
			}
		})
	}
}

// A COMMIT whose answer was lost is repeated. The time of the row stays that of the first one.
func TestRecordStep_KeepsItsTime(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	c := newCalling(operation.Keyed(time.Hour), failFirst(0, nil))
	if _, err := c.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	id := s.text(`select id::text from idem.operations`)
	recorded := func() string { return s.text(`select recorded_at::text from idem.steps where operation_id = $1`, id) }
	record := func(outcome store.StepOutcome) {
		t.Helper()
		engine := txn.Engine{Pool: s.pool, Limits: txn.DefaultLimits}
		step := store.Step{Seq: 1, Kind: store.CallStep, Name: "call", Outcome: outcome, Value: []byte(`"done"`)}
		if err := engine.Query(t.Context(), &store.RecordStep{OperationID: id, Step: step}); err != nil {
			t.Fatal(err)
		}
	}
	first := recorded()
	if record(store.StepDone); recorded() != first {
		t.Errorf("recorded at %s, and again at %s", first, recorded())
	}
	if record(store.StepFailed); recorded() == first {
		t.Error("another outcome has the time of the one before")
	}
}
