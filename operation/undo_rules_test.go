package operation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// book is the bank and the warehouse of a program: what was done there, in order, and whatever undid it.
type book struct{ shop *shop }

func (b book) note(ctx context.Context, what string) error { return writeOutside(ctx, b.shop, what) }

// tx takes a Tx, with as many undos as there are names.
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

// call makes a Call, with as many undos as there are names.
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

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestUndo_Programs holds twelve small programs to the rules of Undo.
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
			d := operation.Define("program", func(op *operation.Op, _ string) (idem.Response, error) {
				return created, test.program(book{s}, op)
			})
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, "")
			if err != nil && !errors.Is(err, errDeclined) {
				t.Fatal(err)
			}
			if got := strings.Join(s.did(), " "); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			if s.count(`select count(*) from idem.operations`) == 0 {
				return
			}
			status, err := operation.Show(t.Context(), s.pool, s.text(`select id::text from idem.operations`))
			if err != nil || strings.Join(status.Kept, " ") != test.kept || len(status.Undos) > 0 {
				t.Errorf("kept %q, undos %q, %v", status.Kept, status.Undos, err)
			}
		})
	}
}

// An operation that is canceled undoes the same as one that is rejected: at whatever recorded step it is.
func TestCancel_UndoesWhatIsDone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := operation.Define("waits", func(op *operation.Op, _ string) (idem.Response, error) {
		b := book{s}
		err := first(b.tx(op, "reserve", "release"), b.call(op, "check"), b.call(op, "charge", "refund"), operation.Sleep(op, "nap", time.Hour))
		return created, err
	})
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, idem.ErrInProgress) {
		t.Fatal(err)
	}
	id := s.text(`select id::text from idem.operations`)
	preview, err := operation.PreviewCancel(t.Context(), s.pool, id)
	if got := fmt.Sprint(preview); err != nil || got != "{[] false false  [charge reserve] [check]}" {
		t.Errorf("the preview is %s, %v", got, err)
	}
	for range 2 { // a double click
		if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, ""); !errors.Is(err, operation.ErrCanceled) {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.did()); got != "[reserve check charge refund release]" {
		t.Error(got)
	}
	if err := operation.Cancel(t.Context(), s.pool, id); err != nil {
		t.Errorf("Cancel of what Cancel has ended: %v", err)
	}
	status, err := operation.Show(t.Context(), s.pool, id)
	if err != nil || status.State != operation.StateUndone || fmt.Sprint(status.Kept) != "[check]" {
		t.Errorf("%+v, %v", status, err)
	}
}
