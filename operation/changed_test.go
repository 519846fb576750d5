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

// asleep runs an operation until it sleeps, and wakes it up.
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

func TestChangedCodeParksTheOperationAndNamesBothSteps(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		code   []stepOf
		reason []string
	}{
		{"another name", []stepOf{named(localStep, "fetch"), named(outsideStep, "charge"), longSleep}, []string{`"reserve"`, `"fetch"`}},
		{"another kind", []stepOf{named(outsideStep, "reserve"), named(outsideStep, "charge"), longSleep}, []string{`tx "reserve"`, `call "reserve"`}},
		{"another order", []stepOf{named(outsideStep, "charge"), named(localStep, "reserve"), longSleep}, []string{`"reserve"`, `"charge"`}},
		{"a step less", []stepOf{named(localStep, "reserve"), named(outsideStep, "charge")}, []string{`"pause"`}},
		{"a value of another type", []stepOf{func(op *operation.Op, _ string) error {
			_, err := operation.Tx(op, "reserve", func(pgx.Tx) (int, error) { return 1, nil })
			return err
		}}, []string{`"reserve"`, "decode into int"}},
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
			if !errors.As(err, &parked) {
				t.Fatal(err)
			}
			for _, part := range test.reason {
				if !strings.Contains(parked.Reason, part) {
					t.Errorf("the reason %q lacks %s", parked.Reason, part)
				}
			}
		})
	}
}

func TestInputThatNoLongerDecodesParksTheOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	asleep(t, s, named(localStep, "reserve"), longSleep)
	d := operation.Define("evolving", func(*operation.Op, string) (idem.Response, error) { return created, nil })
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "a text"); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
}

func TestChangedIsFalseForAnOperationThatHasComePastIt(t *testing.T) {
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

// An error that passes decides nothing: the function may fail anywhere, also while it repeats what is on record.
func TestAnErrorInTheMidstOfWhatIsOnRecordIsNoChangeOfTheCode(t *testing.T) {
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

// Once it is on record that an operation is undone, its function has to come to the same decision again.
func TestFunctionThatNoLongerRejectsWhatIsBeingUndoneIsParked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, reason string
		goOn         func(op *operation.Op) (idem.Response, error)
	}{
		{"it takes another step", "asks for more", func(op *operation.Op) (idem.Response, error) {
			return created, localStep(op, "another")
		}},
		{"it takes another step, whatever that says", "no longer says so", func(op *operation.Op) (idem.Response, error) {
			_ = localStep(op, "another")
			return created, nil
		}},
		{"it succeeds", "no longer says so", func(*operation.Op) (idem.Response, error) { return created, nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			broken := true
			end := func(*operation.Op) (idem.Response, error) { return idem.Response{}, idem.Reject(declined) }
			d := operation.Define("evolving", func(op *operation.Op, _ int) (idem.Response, error) {
				if err := outsideStep(op, "charge"); err != nil {
					return idem.Response{}, err
				}
				err := operation.Undo(op, "refund", operation.Keyed(time.Hour), func(context.Context, string) error {
					if broken {
						return operation.Final(errDeclined)
					}
					return nil
				})
				if err != nil {
					return idem.Response{}, err
				}
				return end(op)
			})
			call := func() error {
				_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(limit))
				return err
			}
			if err := call(); !errors.Is(err, operation.ErrParked) {
				t.Fatal(err)
			}
			retry := func() error {
				return operation.Retry(t.Context(), s.pool, s.text(`select id::text from idem.operations`))
			}
			same := end
			broken, end = false, test.goOn
			if err := errors.Join(retry(), call()); !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), test.reason) {
				t.Errorf("%v, and it is %s", err, s.text(`select state from idem.operations`))
			}
			end = same
			if err := errors.Join(retry(), call()); err != nil {
				t.Error("with the code as it was:", err)
			}
		})
	}
}
