package operation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// asleep runs an operation until it sleeps, and ends the pause.
func asleep(t *testing.T, s *shop, steps ...stepOf) {
	t.Helper()
	d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
		for _, step := range steps {
			if err := step(op, "step"); err != nil {
				return idem.Response{}, err
			}
		}
		return created, nil
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
}

func named(step stepOf, name string) stepOf {
	return func(op *operation.Op, _ string) error { return step(op, name) }
}

func longSleep(op *operation.Op, _ string) error { return operation.Sleep(op, "pause", 20*time.Hour) }

func TestChanged_OtherStepsPark(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		code   []stepOf
		reason operation.Reason
		text   []string
	}{
		{"another name", []stepOf{named(localStep, "fetch"), named(outsideStep, "charge"), longSleep}, operation.ReasonCodeChanged, []string{`"reserve"`, `"fetch"`}},
		{"another kind", []stepOf{named(outsideStep, "reserve"), named(outsideStep, "charge"), longSleep}, operation.ReasonCodeChanged, []string{`tx "reserve"`, `call "reserve"`}},
		{"another order", []stepOf{named(outsideStep, "charge"), named(localStep, "reserve"), longSleep}, operation.ReasonCodeChanged, []string{`"reserve"`, `"charge"`}},
		{"a step less", []stepOf{named(localStep, "reserve"), named(outsideStep, "charge")}, operation.ReasonCodeChanged, []string{`"pause"`}},
		{"a value of another type", []stepOf{func(op *operation.Op, _ string) error {
			_, err := operation.Tx(op, "reserve", func(pgx.Tx) (int, error) { return 1, nil })
			return err
		}}, operation.ReasonValueUnreadable, []string{`"reserve"`, "decode into int"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			asleep(t, s, named(localStep, "reserve"), named(outsideStep, "charge"), longSleep)
			d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
				for _, step := range test.code {
					if err := step(op, "step"); err != nil {
						return created, nil // whatever the function makes of it
					}
				}
				return created, nil
			})
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0)
			var parked *operation.ParkedError
			if !errors.As(err, &parked) || parked.Reason != test.reason {
				t.Fatal(err)
			}
			for _, part := range test.text {
				if !strings.Contains(parked.ReasonText, part) {
					t.Errorf("the reason %q lacks %s", parked.ReasonText, part)
				}
			}
		})
	}
}

func TestChanged_InputUnreadableParks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asleep(t, s, named(localStep, "reserve"), longSleep)
	d := operation.Define("evolving", func(*operation.Op, string) (idem.Response, error) { return created, nil })
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "a text"); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
}

func TestChanged_FalseBehindRecordedSteps(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asleep(t, s, named(localStep, "reserve"), named(outsideStep, "charge"), longSleep)
	var changed []bool
	d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "reserve"); err != nil {
			return idem.Response{}, err
		}
		first := op.Changed("fraud check")
		if first {
			if err := localStep(op, "check"); err != nil {
				return idem.Response{}, err
			}
		}
		if err := outsideStep(op, "charge"); err != nil {
			return idem.Response{}, err
		}
		if err := longSleep(op, ""); err != nil {
			return idem.Response{}, err
		}
		changed = append(changed, first, op.Changed("after the pause"))
		return created, nil
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "new", hashA, 0, idem.WithWait(0)); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	s.elapse()
	if _, err := d.Do(t.Context(), s.pool, scope, "new", hashA, 0); err != nil {
		t.Fatal(err)
	}
	if len(changed) != 4 || changed[0] || !changed[1] || !changed[2] || !changed[3] {
		t.Errorf("Changed answered %v", changed)
	}
}

// An ordinary error decides nothing, also before the last recorded step.
func TestChanged_ErrorBeforeRecordedSteps(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asleep(t, s, named(localStep, "reserve"), named(outsideStep, "charge"), longSleep)
	fails := errors.New("for once")
	d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
		if err := localStep(op, "reserve"); err != nil {
			return idem.Response{}, err
		}
		return idem.Response{}, fails
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, fails) {
		t.Fatal(err)
	}
	if n := s.count(`select count(*) from idem.operations where state = 'running' and owner is null`); n != 1 {
		t.Errorf("the operation is not free for the next process: %s", s.text(`select state || coalesce(reason, '') from idem.operations`))
	}
}

// The first run rejects, and its undo fails. From then on the operation ends in that rejection, whatever the function returns.
func TestChanged_RecordedRejectionCounts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(op *operation.Op) (idem.Response, error){
		"another step": func(op *operation.Op) (idem.Response, error) { return created, localStep(op, "another") },
		"another step, whose error is dropped": func(op *operation.Op) (idem.Response, error) {
			_ = localStep(op, "another")
			return created, nil
		},
		"an answer": func(*operation.Op) (idem.Response, error) { return created, nil },
		"an error":  func(*operation.Op) (idem.Response, error) { return created, errTimeout },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			first := true
			d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge,
					operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error {
						if first {
							return operation.Final(errDeclined)
						}
						return nil
					}))
				switch {
				case err != nil:
					return idem.Response{}, err
				case first:
					return idem.Response{}, idem.Reject(declined)
				}
				return end(op)
			})
			call := func() (idem.Result, error) {
				return d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit))
			}
			if _, err := call(); !errors.Is(err, operation.ErrParked) {
				t.Fatal(err)
			}
			first = false
			if err := operation.Retry(t.Context(), s.pool, s.operationID()); err != nil {
				t.Fatal(err)
			}
			if res, err := call(); err != nil || !res.Rejected || res.Status != declined.Status {
				t.Errorf("%+v, %v", res, err)
			}
			if got := s.text(`select coalesce(string_agg(kind || ' ' || name || ' ' || outcome, ', ' order by seq), '') from idem.steps where kind not in ('end')`); got != "call charge done, undo charge done" {
				t.Errorf("recorded: %s", got)
			}
		})
	}
}
