package operation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// route is a function of few kinds of steps, one letter each:
//
//	T a Tx          V an UndoTx
//	A a Call        U an Undo
//	X a Call in which the operation is cancelled
//	N a Call that cannot be sent, and in which it is cancelled
//	D a Call that is declined, which the function accepts
//	P hotel, air and car in one Parallel, in which it is cancelled
//	O a Call that is Once and has no answer
//	R, F the function ends in a rejection, or in an error that is Final
type route struct {
	*shop
	steps string
	done  []string
}

func (r *route) run(op *operation.Op, _ int) (idem.Response, error) {
	for i, kind := range r.steps {
		name := string(kind) + string(rune('1'+i))
		call := func(safety operation.Safety, value error, cancels bool) error {
			_, err := operation.Call(op, name, safety, func(ctx context.Context, _ string) (string, error) {
				if cancels {
					return name, errors.Join(value, operation.Cancel(ctx, r.pool, op.ID()))
				}
				return name, value
			}, operation.Pauses(100*time.Hour, 100*time.Hour)) // which is recorded, and so finds the cancellation
			return err
		}
		var err error
		switch kind {
		case 'T':
			_, err = operation.Tx(op, name, write(name))
		case 'V':
			err = operation.UndoTx(op, name, writeUndo(name))
		case 'U':
			err = operation.Undo(op, name, operation.Keyed(time.Hour), func(context.Context, string) error {
				r.done = append(r.done, name)
				return nil
			})
		case 'A':
			err = call(operation.Keyed(time.Hour), nil, false)
		case 'X':
			err = call(operation.Keyed(time.Hour), nil, true)
		case 'N':
			err = call(operation.Keyed(time.Hour), operation.NotSent(errTimeout), true)
		case 'P':
			calls := operation.Parallel(op)
			for _, what := range []string{"hotel", "air", "car"} {
				operation.Go(calls, what, operation.Keyed(time.Hour), func(ctx context.Context, _ string) (string, error) {
					if what == "air" {
						return what, operation.Cancel(ctx, r.pool, op.ID())
					}
					return what, nil
				})
			}
			err = calls.Wait()
		case 'O':
			err = call(operation.Once, errTimeout, false)
		case 'D':
			if err = call(operation.Keyed(time.Hour), operation.Final(errDeclined), true); errors.Is(err, errDeclined) {
				err = nil
			}
		case 'R':
			return idem.Response{}, idem.Reject(declined)
		case 'F':
			return idem.Response{}, operation.Final(errDeclined)
		}
		if err != nil {
			return idem.Response{}, err
		}
	}
	return created, nil
}

// It says undone, or a person is asked: never the one over something that has happened, and that no undo has taken back.
func TestCancelledOperationIsUndoneAsAWholeOrNamesWhatNoUndoTakesBack(t *testing.T) {
	t.Parallel()
	for steps, test := range map[string]struct {
		left string   // what the reason names
		undo []string // which undos were run; nil if a person is asked
	}{
		"TVUXTU": {"", []string{"V2", "U3", "U6"}},
		"TVUX":   {`call "X4"`, nil},
		"TVUXAU": {`call "X4"`, nil},
		"TUVXTV": {"", []string{"U2", "V3", "V6"}},
		"TVXTU":  {"", []string{"V2", "U5"}},
		"UX":     {"", []string{"U1"}},
		"VUX":    {"", []string{"V1", "U2"}},
		"TNV":    {`tx "T1"`, nil},
		"TDAV":   {`tx "T1"`, nil},
		"TVNU":   {"", []string{"V2"}},
		"TVANV":  {`call "A3"`, nil},
		"TAAXR":  {`call "A2", call "A3" and call "X4"`, nil},
		"AXF":    {`call "A1" and call "X2"`, nil},
		"TX":     {`call "X2"`, nil},
		"TXU":    {"", []string{"U3"}},
		"PAU":    {`call "hotel", call "air" and call "car"`, nil},
		"P":      {`call "hotel", call "air" and call "car"`, nil},
		"PU":     {"", []string{"U2"}},
		"UPA":    {"", []string{"U1"}},
		"TVTVXU": {"", []string{"V2", "V4", "U6"}},
	} {
		t.Run(steps, func(t *testing.T) {
			t.Parallel()
			r := &route{shop: newShop(t), steps: steps}
			_, err := operation.Define("route", r.run).Do(t.Context(), r.pool, scope, "k", hashA, 0)
			if test.undo == nil {
				var parked *operation.ParkedError
				if !errors.As(err, &parked) || !strings.HasPrefix(parked.Reason, "it was cancelled, and "+test.left+" ha") {
					t.Errorf("got %v, want that %s is left", err, test.left)
				}
				return
			}
			if !errors.Is(err, operation.ErrCancelled) {
				t.Errorf("got %v, want that it is cancelled", err)
			}
			ran := strings.Fields(r.text(`select coalesce(string_agg(name, ' ' order by seq), '') from idem.steps where kind like 'undo%' and outcome = 'undone'`))
			if diff := cmp.Diff(test.undo, ran); diff != "" {
				t.Errorf("(-want +run):\n%s", diff)
			}
		})
	}
}

// A person finds out that the call has not happened: what was committed before it stays committed.
func TestCancelBehindACallThatHasNotHappenedNamesTheCommittedTx(t *testing.T) {
	t.Parallel()
	r := &route{shop: newShop(t), steps: "TOV"}
	d := operation.Define("route", r.run)
	if _, err := d.Do(t.Context(), r.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrParked) {
		t.Fatal(err)
	}
	id := r.operationID()
	if err := errors.Join(operation.Resolve(t.Context(), r.pool, id, operation.NotHappened), operation.Cancel(t.Context(), r.pool, id)); err != nil {
		t.Fatal(err)
	}
	_, err := d.Do(t.Context(), r.pool, scope, "k", hashA, 0)
	if !errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), `tx "T1" has happened, which no undo takes back: Retry it with code that has one, or take it back by hand`) {
		t.Errorf("got %v, want that nothing takes the Tx back", err)
	}
	if err := operation.Cancel(t.Context(), r.pool, id); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Do(t.Context(), r.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrCancelled) {
		t.Errorf("cancelled again: %v", err)
	}
}
