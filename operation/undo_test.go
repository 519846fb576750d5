package operation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

var declined = idem.Response{Status: 402, Body: []byte(`"declined"`)}

// undoBy returns an UndoTx that inserts a row.
func undoBy[T any](step string) operation.Undo[T] {
	return operation.UndoTx(func(tx pgx.Tx, _ T) error { return writeUndo(step)(tx) })
}

// trip books three things and then comes to an end that the test chooses.
func (s *shop) trip(end func(op *operation.Op) (idem.Response, error)) *operation.Definition[string] {
	return operation.Define("trip", func(op *operation.Op, _ string) (idem.Response, error) {
		_, _ = operation.Tx(op, "flight", write("flight"), undoBy[string]("cancel flight"))
		refund := operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, key, _ string) error {
			_, err := s.bank.charge(ctx, key)
			return errors.Join(err, writeOutside(ctx, s, "refund"))
		})
		_, err := operation.Call(op, "pay", operation.Keyed(time.Hour), s.bank.charge, refund)
		_, other := operation.Tx(op, "hotel", write("hotel"), undoBy[string]("cancel hotel"))
		if err := first(err, other); err != nil {
			return idem.Response{}, err
		}
		return end(op)
	})
}

// writeOutside inserts a row in a transaction of its own, as another system would.
func writeOutside(ctx context.Context, s *shop, step string) error {
	_, err := s.pool.Exec(ctx, `insert into done (step) values ($1)`, step)
	return err
}

func TestFinal_UndoesAndFreesTheKey(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	fail := true
	d := s.trip(func(op *operation.Op) (idem.Response, error) {
		if fail {
			_, err := operation.Call(op, "seat", operation.Keyed(time.Hour), func(context.Context, string) (int, error) {
				return 0, operation.Final(errDeclined)
			})
			return idem.Response{}, fmt.Errorf("no seat: %w", err)
		}
		return created, nil
	})
	want(t, errDeclined)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantDid("flight", "hotel", "cancel hotel", "refund", "cancel flight")
	first := s.text(`select id::text from idem.operations where state = 'undone'`)
	fail = false
	res, err := d.Do(t.Context(), s.pool, scope, "k", hashB, "")
	if err != nil || res.Replayed || res.ExecutionID == first {
		t.Errorf("the key is not free: %+v, %v", res, err)
	}
	if n, asked := s.bank.keys(); n != 3 || asked != 3 { // pay, refund, and pay of the second operation
		t.Errorf("the bank saw %d keys in %d requests", n, asked)
	}
}

// The undos run from the last step to the first. If one fails for good, the operation parks. After
// Retry that undo and the later ones run.
func TestUndo_ThatFailsParksUntilRetry(t *testing.T) {
	t.Parallel()
	failed := fmt.Errorf("\x00%w\xff", errDeclined)
	for name, undo := range map[string]func(fails *bool) operation.Undo[string]{
		"UndoCall": func(fails *bool) operation.Undo[string] {
			return operation.UndoCall(operation.Keyed(time.Hour), func(context.Context, string, string) error {
				if *fails {
					return operation.Final(failed)
				}
				return nil
			})
		},
		"UndoTx": func(fails *bool) operation.Undo[string] {
			return operation.UndoTx(func(pgx.Tx, string) error {
				if *fails {
					return failed
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			fails := true
			d := define(func(op *operation.Op) (err error) {
				for _, step := range []struct {
					name string
					undo operation.Undo[string]
				}{{"reserve", undoBy[string]("release")}, {"charge", undo(&fails)}, {"ship", undoBy[string]("unship")}} {
					_, failed := operation.Call(op, step.name, operation.Keyed(time.Hour), s.bank.charge, step.undo)
					err = first(err, failed)
				}
				return first(err, errRejected)
			})
			for range 2 {
				parked := parkedAt(t, "charge", operation.ReasonUndoFailed)(s.do(d, idem.WithWait(0)))
				if idem.Retryable(parked) || !strings.HasPrefix(parked.ReasonText, `the undo of step "charge" has failed: the card is declined`) {
					t.Error(parked.ReasonText)
				}
			}
			status, err := operation.Show(t.Context(), s.pool, s.operationID())
			if err != nil || !slices.Equal(status.Undos[max(0, len(status.Undos)-2):], []string{"charge", "reserve"}) || status.Kept != nil {
				t.Errorf("%+v, %v", status, err)
			}
			if name == "UndoTx" { // it is not in doubt, so there is no key to ask for, and nothing to resolve
				if status.Kind != "" || status.Step != "charge" {
					t.Errorf("%+v", status)
				}
				const calls = `select string_agg(encode(value, 'hex') || outcome, ' ' order by seq) from idem.steps where kind = 'call'`
				before := s.text(calls)
				for _, finding := range []operation.Finding{operation.Happened("other"), operation.NotHappened} {
					want(t, operation.ErrNotParked)(nil, operation.Resolve(t.Context(), s.pool, s.operationID(), finding))
				}
				if after := s.text(calls); after != before {
					t.Errorf("%s became %s", before, after)
				}
			}
			fails = false
			must(t, operation.Retry(t.Context(), s.pool, s.operationID()))
			wantRejected(t)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
			s.wantDid("unship", "release")
		})
	}
}

// book is the books of the bank and the warehouse: what was done there and what was undone, in
// order.
type book struct{ shop *shop }

func (b book) note(ctx context.Context, what string) error { return writeOutside(ctx, b.shop, what) }

// tx takes a Tx with an undo for each name.
func (b book) tx(op *operation.Op, name string, undos ...string) error {
	var undo []operation.Undo[string]
	for _, u := range undos {
		undo = append(undo, operation.UndoTx(func(tx pgx.Tx, done string) error {
			if done != name+" is done" {
				return fmt.Errorf("the undo got %q", done)
			}
			return writeUndo(u)(tx)
		}))
	}
	_, err := operation.Tx(op, name, write(name), undo...)
	return err
}

// call makes a Call with an undo for each name.
func (b book) call(op *operation.Op, name string, undos ...string) error {
	var undo []operation.Undo[string]
	for _, u := range undos {
		undo = append(undo, operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, _ string, done string) error {
			if done != "value of "+name {
				return fmt.Errorf("the undo got %q", done)
			}
			return b.note(ctx, u)
		}))
	}
	_, err := operation.Call(op, name, operation.Keyed(time.Hour), func(ctx context.Context, _ string) (string, error) {
		return "value of " + name, b.note(ctx, name)
	}, undo...)
	return err
}

// declines makes a Call that is declined.
func (b book) declines(op *operation.Op, name string, undos ...string) error {
	var undo []operation.Undo[string]
	for _, u := range undos {
		undo = append(undo, operation.UndoCall(operation.Keyed(time.Hour), func(ctx context.Context, _ string, _ string) error { return b.note(ctx, u) }))
	}
	_, err := operation.Call(op, name, operation.Keyed(time.Hour), func(context.Context, string) (string, error) {
		return "", operation.Final(errDeclined)
	}, undo...)
	return err
}

var errRejected = idem.Reject(declined)

// Small programs check the rules of Undo.
func TestUndo_Programs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		program func(b book, op *operation.Op) error
		want    string // what is committed, in order
		kept    string
	}{
		{"Tx and Call, rejected", func(b book, op *operation.Op) error {
			return first(b.tx(op, "reserve", "release"), b.call(op, "charge", "refund"), errRejected)
		}, "reserve charge refund release", ""},
		{"a declined call is not undone", func(b book, op *operation.Op) error {
			return first(b.tx(op, "reserve", "release"), b.declines(op, "charge", "refund"))
		}, "reserve release", ""},
		{"a declined call behind a check without an undo", func(b book, op *operation.Op) error {
			return first(b.call(op, "check"), b.declines(op, "charge", "refund"))
		}, "check", "check"},
		{"a declined call, and another that is done", func(b book, op *operation.Op) error {
			if err := b.declines(op, "charge", "refund"); !errors.Is(err, errDeclined) {
				return err
			}
			return first(b.call(op, "pay", "repay"), errRejected)
		}, "pay repay", ""},
		{"a step without an undo stays", func(b book, op *operation.Op) error {
			return first(b.call(op, "mail"), b.call(op, "charge", "refund"), errRejected)
		}, "mail charge refund", "mail"},
		{"several undos of one step, in reverse", func(b book, op *operation.Op) error {
			return first(b.call(op, "charge", "refund", "mail the refund"), errRejected)
		}, "charge mail the refund refund", ""},
		{"Tx behind the last commit leaves nothing", func(b book, op *operation.Op) error {
			return first(b.call(op, "charge", "refund"), b.tx(op, "confirm", "unconfirm"), errRejected)
		}, "charge refund", ""},
		{"Tx behind a checkpoint is undone", func(b book, op *operation.Op) error {
			return first(b.call(op, "charge", "refund"), b.tx(op, "confirm", "unconfirm"), op.Checkpoint(), errRejected)
		}, "charge confirm unconfirm refund", ""},
		{"the same name twice", func(b book, op *operation.Op) error {
			return first(b.call(op, "charge", "refund"), b.call(op, "charge", "refund"), errRejected)
		}, "charge charge refund refund", ""},
		{"a Tx and a Call of one name", func(b book, op *operation.Op) error {
			return first(b.tx(op, "order", "unorder"), b.call(op, "order", "return"), errRejected)
		}, "order order return unorder", ""},
		{"a loop", func(b book, op *operation.Op) error {
			for i := range 3 {
				if err := b.call(op, fmt.Sprintf("seat %d", i), fmt.Sprintf("free %d", i)); err != nil {
					return err
				}
			}
			return errRejected
		}, "seat 0 seat 1 seat 2 free 2 free 1 free 0", ""},
		{"only Tx is rolled back as a whole", func(b book, op *operation.Op) error {
			return first(b.tx(op, "reserve", "release"), b.tx(op, "confirm", "unconfirm"), errRejected)
		}, "", ""},
		{"a Tx that has failed is not undone", func(b book, op *operation.Op) error {
			if err := b.call(op, "charge", "refund"); err != nil {
				return err
			}
			_, err := operation.Tx(op, "confirm", func(pgx.Tx) (string, error) { return "", errDeclined },
				operation.UndoTx(func(tx pgx.Tx, _ string) error { return writeUndo("unconfirm")(tx) }))
			if !errors.Is(err, errDeclined) {
				return fmt.Errorf("the Tx returned %v", err)
			}
			return errRejected
		}, "charge refund", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := define(func(op *operation.Op) error { return test.program(book{s}, op) })
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
			if err != nil && !errors.Is(err, errDeclined) {
				t.Fatal(err)
			}
			s.wantDid(test.want)
			if s.count(`select count(*) from idem.operations`) == 0 {
				return
			}
			status, err := operation.Show(t.Context(), s.pool, s.operationID())
			if err != nil || strings.Join(status.Kept, " ") != test.kept || len(status.Undos) > 0 {
				t.Errorf("kept %q, undos %q, %v", status.Kept, status.Undos, err)
			}
		})
	}
}

// Cancel undoes the same as a rejection, at every recorded step.
func TestCancel_UndoesWhatIsDone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		b := book{s}
		return first(b.tx(op, "reserve", "release"), b.call(op, "check"), b.call(op, "charge", "refund"), operation.Sleep(op, "nap", time.Hour))
	})
	id := s.waits(t, d, "k")
	preview, err := operation.PreviewCancel(t.Context(), s.pool, id)
	if got := fmt.Sprint(preview); err != nil || got != "{[] false false  [charge reserve] [check]}" {
		t.Errorf("the preview is %s, %v", got, err)
	}
	for range 2 { // a double click
		must(t, operation.Cancel(t.Context(), s.pool, id))
	}
	want(t, operation.ErrCanceled)(d.Do(t.Context(), s.pool, scope, "k", hashA, ""))
	s.wantDid("reserve check charge refund release")
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Errorf("Cancel of what Cancel has ended: %v", err)
	}
	s.wantState(id, operation.StateUndone, "check")
}

// The writes of the Tx since the last commit may be committed without their rows. Another run would
// write them again.
func TestTxEnded_Parks(t *testing.T) {
	t.Parallel()
	ends := func(sql string, err error) func(pgx.Tx) error {
		return func(tx pgx.Tx) error {
			if _, failed := tx.Exec(context.Background(), sql, pgx.QueryExecModeSimpleProtocol); failed != nil {
				return failed
			}
			return err
		}
	}
	for name, test := range map[string]struct {
		guilty func(pgx.Tx) error
		next   stepOf
		undone bool // the guilty one is an undo
	}{
		"a commit, and an error":                {ends("commit", errDeclined), outsideStep, false},
		"another transaction, with a Call next": {ends("commit; begin", nil), outsideStep, false},
		"another transaction, with a Tx next":   {ends("commit; begin", nil), localStep, false},
		"an undo that commits":                  {ends("commit", nil), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			d := define(func(op *operation.Op) error {
				if test.undone {
					_, err := operation.Call(op, "bad", operation.Keyed(time.Hour), s.bank.charge, operation.UndoTx(func(tx pgx.Tx, _ string) error { return test.guilty(tx) }))
					if err == nil {
						_, err = operation.Call(op, "book", operation.Keyed(time.Hour), s.bank.charge, undoBy[string]("book"))
					}
					return first(err, errRejected)
				}
				// whatever the function makes of the error
				return ignore(first(outsideStep(op, "call"), localStep(op, "book"), operation.Exec(op, "bad", test.guilty), test.next(op, "next")))
			})
			kind := map[bool]string{true: "undo", false: "tx"}[test.undone]
			var parked *operation.ParkedError
			_, err := s.do(d, idem.WithWait(0))
			if !errors.As(err, &parked) || !errors.Is(parked.Cause, idem.ErrTxEnded) || parked.Reason != operation.ReasonTxEnded ||
				!strings.Contains(parked.ReasonText, kind+` "book", `+kind+` "bad"`) {
				t.Fatalf("got %v, want that it is parked", err)
			}
			want(t, operation.ErrParked)(d.Do(t.Context(), s.pool, scope, "k", hashA, "", idem.WithWait(0)))
			s.wantDid("book")
		})
	}
}

// If nothing of the operation is committed yet, the key is refused, as with idem.Do.
func TestTxEnded_InTheFirstTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		return first(localStep(op, "book"), operation.Exec(op, "bad", executing("commit")))
	})
	for range 3 {
		want(t, idem.ErrTxEnded)(s.do(d, idem.WithWait(time.Millisecond)))
	}
	s.wantDid("book")
}
