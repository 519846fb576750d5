package operation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// code is the function of an operation, of one release or the next.
type code = func(op *operation.Op) error

// history returns the History of the operation of a key.
func (s *shop) history(t *testing.T, key string, opts ...idem.Option) []byte {
	t.Helper()
	file, err := operation.History(t.Context(), s.pool, s.text(`select id::text from idem.operations where key = $1`, key), opts...)
	must(t, err)
	return file
}

// takes takes steps in order. A name may end in a colon and the kind of the step.
func takes(op *operation.Op, names ...string) error {
	for _, name := range names {
		name, kind, _ := strings.Cut(name, ":")
		var err error
		switch kind {
		case "tx":
			err = localStep(op, name)
		case "call":
			err = outsideStep(op, name)
		case "undone":
			_, err = operation.Tx(op, name, write(name), undoBy[string]("undo "+name))
		case "changed":
			op.Changed(name)
		case "pause":
			err = operation.Sleep(op, name, time.Millisecond)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func taking(names ...string) code {
	return func(op *operation.Op) error { return takes(op, names...) }
}

// Replay reports what new code does with an operation in progress.
func TestReplay_ReportsWhatNewCodeParks(t *testing.T) {
	t.Parallel()
	errDown := errors.New("down")
	old := func(op *operation.Op) error { // it comes no further than the pause
		return errors.Join(takes(op, "reserve:undone", "charge:call", "pause:pause"), errDown)
	}
	s := newShop(t)
	for _, test := range []struct {
		name string
		old  code
		next code
		want string // what the reason has in it; nothing if the operation goes on
	}{
		{"the same steps", old, taking("reserve:undone", "charge:call", "pause:pause"), ""},
		{"a step behind them", old, taking("reserve:undone", "charge:call", "pause:pause", "note:tx", "tell:call"), ""},
		{"a step among them", old, taking("reserve:undone", "check:tx", "charge:call", "pause:pause"), `asks for tx "check"`},
		{"a step that asks whether it is new", old, func(op *operation.Op) error {
			if err := takes(op, "reserve:undone"); err != nil {
				return err
			}
			if op.Changed("check") {
				return takes(op, "check:tx", "charge:call")
			}
			return takes(op, "charge:call", "pause:pause")
		}, ""},
		{"a Changed that is not recorded", old, taking("reserve:undone", "charge:call", "pause:pause", "note:changed", "note:tx"), ""},
		{"a recorded Changed is gone", taking("one:tx", "new:changed", "two:call", "three:call"), taking("one:tx", "two:call", "three:call"), `asks for call "two"`},
		{"a pause that is over", taking("one:tx", "pause:pause", "two:call", "three:call"), taking("one:tx", "pause:pause", "two:call"), "no longer asks for step \"three\""},
		{"a step is gone", old, taking("reserve:undone", "charge:call"), `no longer asks for step "pause"`},
		{"a step is renamed", old, taking("reserve:undone", "pay:call", "pause:pause"), `asks for call "pay"`},
		{"a step is another kind", old, taking("reserve:undone", "charge:tx", "pause:pause"), `asks for tx "charge"`},
		{"a value is another type", old, func(op *operation.Op) error {
			_, err := operation.Tx(op, "reserve", func(pgx.Tx) (map[string]bool, error) { return nil, nil })
			return err
		}, "does not decode"},
		{"two at the same time", old, func(op *operation.Op) error {
			err := takes(op, "reserve:undone")
			calls := operation.Parallel(op)
			for _, name := range []string{"charge", "tell"} {
				operation.Go(calls, name, operation.Keyed(time.Hour), func(context.Context, string) (int, error) { return 7, nil })
			}
			return errors.Join(err, calls.Wait(), takes(op, "pause:pause"))
		}, `asks for call "tell"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			stops := func(op *operation.Op) error { return errors.Join(test.old(op), errDown) }
			want(t, errDown)(define(stops).Do(t.Context(), s.pool, scope, test.name, hashA, "in"))
			history := s.history(t, test.name)
			next := define(test.next)
			replayed := operation.Replay(t.Context(), history, next)
			_, lived := next.Do(t.Context(), s.pool, scope, test.name, hashA, "in")
			for what, err := range map[string]error{"replayed": replayed, "lived": lived} {
				if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, operation.ErrParked) || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%s: %v, want %q\n%s", what, err, test.want, history)
				}
			}
		})
	}
}

// Replay takes no step and makes no call.
func TestReplay_TakesNoStep(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	travel := newJourney(operation.Keyed(time.Hour), operation.Once)
	travel.room.fn = func(context.Context, int) (string, error) { return "", errTimeout } // it is in doubt, and parks
	want(t, operation.ErrParked)(travel.define().Do(t.Context(), s.pool, scope, "k", hashA, ""))
	history := s.history(t, "k")
	s.pool.Close() // a replay that asked it would fail
	again := newJourney(operation.Keyed(time.Hour), operation.Once)
	must(t, operation.Replay(t.Context(), history, again.define()))
	if n := again.air.times() + again.room.times(); n > 0 {
		t.Errorf("%d calls were made", n)
	}
}

func TestReplay_EndsWhereTheOperationWaits(t *testing.T) {
	t.Parallel()
	packs := operation.Define("packs", func(*operation.Op, string) (idem.Response, error) { return created, nil })
	for name, waits := range map[string]code{
		"sleep": func(op *operation.Op) error { return operation.Sleep(op, "wait", time.Hour) },
		"await": func(op *operation.Op) error { _, err := operation.Await[int](op, "wait", time.Hour); return err },
		"child": func(op *operation.Op) error { _, err := operation.Child(op, "wait", packs, ""); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := define(func(op *operation.Op) error { return errors.Join(takes(op, "first:tx"), waits(op)) })
			s.waits(t, d, "k")
			history := s.history(t, "k")
			s.pool.Close()
			if err := operation.Replay(t.Context(), history, d); err != nil {
				t.Errorf("%v\n%s", err, history)
			}
			if err := operation.Replay(t.Context(), history, define(taking("first:tx", "another:tx"))); !errors.Is(err, operation.ErrParked) {
				t.Errorf("other code: %v", err)
			}
		})
	}
}

// Replay compares all steps of an operation that has ended, and how it has ended.
func TestReplay_ComparesTheEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, test := range []struct {
		name string
		end  error
		next error
		want string
	}{
		{"completed", nil, nil, ""},
		{"completed, and now it is rejected", nil, idem.Reject(declined), "the operation was completed"},
		{"completed, and now it fails", nil, errTimeout, "the function fails"},
		{"rejected", idem.Reject(declined), idem.Reject(declined), ""},
		{"rejected, and now it is completed", idem.Reject(declined), nil, ""}, // its end is recorded
		{"undone", operation.Final(errDeclined), operation.Final(errDeclined), ""},
		{"undone, and now it fails", operation.Final(errDeclined), errTimeout, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ends := func(end error) *operation.Definition[string] {
				return define(func(op *operation.Op) error {
					if err := takes(op, "one:undone", "two:call", "three:tx"); err != nil {
						return err
					}
					return end
				})
			}
			_, _ = ends(test.end).Do(t.Context(), s.pool, scope, test.name, hashA, "in")
			history := s.history(t, test.name)
			err := operation.Replay(t.Context(), history, ends(test.next))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q\n%s", err, test.want, history)
			}
		})
	}
}

// The function of a canceled operation need not reach its end.
func TestReplay_OfACanceledOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		return errors.Join(takes(op, "one:undone"), operation.Sleep(op, "wait", time.Hour), takes(op, "two:tx"))
	})
	id := s.waits(t, d, "k")
	must(t, operation.Cancel(t.Context(), s.pool, id))
	asked := s.history(t, "k")
	want(t, operation.ErrCanceled)(d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(limit)))
	for what, history := range map[string][]byte{"before it is undone": asked, "undone": s.history(t, "k")} {
		if err := operation.Replay(t.Context(), history, d); err != nil {
			t.Errorf("%s: %v\n%s", what, err, history)
		}
	}
	if state := s.text(`select state from idem.operations`); state != "undone" {
		t.Errorf("it is %s", state)
	}
}

// Values survive History and Replay, whatever the codec and the layout of the file.
func TestHistory_KeepsValuesByteForByte(t *testing.T) {
	t.Parallel()
	type row struct{ N int }
	for name, opts := range map[string][]operation.Option{"JSON": nil, "gob": {operation.WithCodec(gobCodec{})}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			const text = "<a href=\"x\">&\u2028é</a>"
			var seen string
			d := operation.Define("kept", func(op *operation.Op, in row) (idem.Response, error) {
				value, err := operation.Tx(op, "value", func(pgx.Tx) (string, error) { return text, nil })
				seen = fmt.Sprint(in.N, value)
				_, failed := operation.Call(op, "fails", operation.Once, func(context.Context, string) (int, error) { return 0, operation.Final(errDeclined) })
				seen += fmt.Sprint(failed)
				return created, errors.Join(err, operation.Sleep(op, "wait", time.Hour))
			}, opts...)
			want(t, idem.ErrInProgress)(d.Do(t.Context(), s.pool, scope, "k", hashA, row{7}, idem.WithWait(0)))
			want, history := seen, s.history(t, "k")
			var laidOut, compact bytes.Buffer
			must(t, errors.Join(json.Indent(&laidOut, history, "", "\t"), json.Compact(&compact, history)))
			for _, file := range [][]byte{history, laidOut.Bytes(), compact.Bytes()} {
				seen = ""
				if err := operation.Replay(t.Context(), file, d); err != nil || seen != want {
					t.Errorf("%v: it saw %q, want %q\n%s", err, seen, want, file)
				}
			}
			if strings.Contains(string(history), "tenant-1") || strings.Contains(string(history), `"k"`) {
				t.Errorf("it tells the key or the scope: %s", history)
			}
			if name == "JSON" && !strings.Contains(string(history), `"N": 7`) {
				t.Errorf("a person cannot read it: %s", history)
			}
		})
	}
}

func TestHistory_NeedsTheSealer(t *testing.T) {
	t.Parallel()
	s, d := newShop(t), decision("approve")
	id := s.waits(t, d, "k", sealerOf(7))
	if file, err := operation.History(t.Context(), s.pool, id); !errors.Is(err, idem.ErrUnreadable) || file != nil {
		t.Errorf("without a Sealer: %s, %v", file, err)
	}
	must(t, operation.Replay(t.Context(), s.history(t, "k", sealerOf(7)), d))
}
