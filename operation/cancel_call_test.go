package operation_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// route is a function of few kinds of steps, one letter each:
//
//	T a Tx, t a Tx with an undo
//	A a Call, a a Call with an undo
//	X a Call during which a person cancels, x the same with an undo
//	o x that is Once
//	n x that is not sent
//	d x that is declined, which the function accepts
//	p three calls of one Parallel, each with an undo; a person cancels during the second
//	R, F the function ends in a rejection, or in a Final error
type route struct {
	*shop
	steps    string
	canceled bool
	late     []string // calls that were made after Cancel
}

func (r *route) call(ctx context.Context, op *operation.Op, name string, cancels bool, err error) (string, error) {
	if r.canceled {
		r.late = append(r.late, name)
	}
	if cancels {
		r.canceled = true
		err = errors.Join(err, operation.Cancel(ctx, r.pool, op.ID()))
	}
	return name, err
}

func (r *route) run(op *operation.Op, _ int) (idem.Response, error) {
	for i, kind := range r.steps {
		name := string(kind) + string(rune('1'+i))
		call := func(policy operation.Policy, cancels bool, answer error, undo ...operation.Undo[string]) error {
			_, err := operation.Call(op, name, policy, func(ctx context.Context, _ string) (string, error) {
				return r.call(ctx, op, name, cancels, answer)
			}, undo...)
			return err
		}
		keyed, undo := operation.Keyed(time.Hour), undoBy[string]("undo")
		var err error
		switch kind {
		case 'T':
			_, err = operation.Tx(op, name, write(name))
		case 't':
			_, err = operation.Tx(op, name, write(name), undo)
		case 'A':
			err = call(keyed, false, nil)
		case 'a':
			err = call(keyed, false, nil, undo)
		case 'X':
			err = call(keyed, true, nil)
		case 'x':
			err = call(keyed, true, nil, undo)
		case 'o':
			err = call(operation.Once, true, nil, undo)
		case 'n':
			err = call(quickly(keyed), true, operation.NotSent(errTimeout), undo)
		case 'd':
			if err = call(keyed, true, operation.Final(errDeclined), undo); errors.Is(err, errDeclined) {
				err = nil
			}
		case 'p':
			calls := operation.Parallel(op)
			for _, what := range []string{"hotel", "air", "car"} {
				operation.Go(calls, what, keyed, func(ctx context.Context, _ string) (string, error) {
					if what == "air" {
						return what, operation.Cancel(ctx, r.pool, op.ID())
					}
					return what, nil
				}, undo)
			}
			err = calls.Wait()
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

// A person cancels during a call. Its answer is recorded, no call follows, and what is done is undone.
func TestCancel_DuringACall(t *testing.T) {
	t.Parallel()
	for steps, test := range map[string]struct {
		undone string // the steps whose undos ran, in that order
		kept   string
	}{
		"taxt": {"x3 a2 t1", ""},
		"tax":  {"x3 a2 t1", ""},
		"TX":   {"", "T1 X2"},
		"tXa":  {"t1", "X2"},
		"to":   {"o2 t1", ""},
		"tan":  {"a2 t1", ""},
		"Tn":   {"", "T1"},
		"td":   {"t1", ""},
		"tda":  {"t1", ""},
		"aAxR": {"x3 a1", "A2"},
		"axF":  {"x2 a1", ""},
		"tp":   {"car air hotel t1", ""},
		"pa":   {"car air hotel", ""},
	} {
		t.Run(steps, func(t *testing.T) {
			t.Parallel()
			r := &route{shop: newShop(t), steps: steps}
			if _, err := operation.Define("route", r.run).Do(t.Context(), r.pool, scope, "k", hashA, 0); !errors.Is(err, operation.ErrCanceled) {
				t.Errorf("got %v, want ErrCanceled", err)
			}
			undone := strings.Fields(r.text(`select coalesce(string_agg(name, ' ' order by seq), '') from idem.steps where kind = 'undo' and outcome = 'done'`))
			if diff := cmp.Diff(strings.Fields(test.undone), undone); diff != "" {
				t.Errorf("(-want +undone):\n%s", diff)
			}
			status, err := operation.Show(t.Context(), r.pool, r.operationID())
			if err != nil || !slices.Equal(status.Kept, strings.Fields(test.kept)) {
				t.Errorf("kept are %v, %v", status.Kept, err)
			}
			if len(r.late) > 0 {
				t.Errorf("%v were made after Cancel", r.late)
			}
		})
	}
}
