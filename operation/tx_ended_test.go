package operation_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// What the Tx since the last commit have written may be committed without their rows. Another run would write it again.
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
		behind func(op *operation.Op) error
		undone bool // the guilty one is an undo
	}{
		"a commit":                                {guilty: ends("commit", nil)},
		"a commit, and an error":                  {guilty: ends("commit", errDeclined)},
		"another transaction":                     {guilty: ends("commit; begin", nil)},
		"another transaction, and an error":       {guilty: ends("commit; begin", errDeclined)},
		"another transaction, with a Tx in it":    {guilty: ends("commit; begin", nil), behind: func(op *operation.Op) error { return localStep(op, "next") }},
		"another transaction, which is committed": {guilty: ends("commit; begin", nil), behind: (*operation.Op).Checkpoint},
		"another transaction, with a Call next":   {guilty: ends("commit; begin", nil), behind: func(op *operation.Op) error { return outsideStep(op, "next") }},
		"an undo that commits":                    {guilty: ends("commit", nil), undone: true},
		"an undo that begins another transaction": {guilty: ends("commit; begin", nil), undone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			mended := false
			guilty := func(tx pgx.Tx) error {
				if mended {
					return nil
				}
				return test.guilty(tx)
			}
			d := operation.Define("guilty", func(op *operation.Op, _ int) (idem.Response, error) {
				if test.undone {
					_, err := operation.Call(op, "bad", operation.Keyed(time.Hour), s.bank.charge, operation.UndoTx(func(tx pgx.Tx, _ string) error { return guilty(tx) }))
					if err == nil {
						_, err = operation.Call(op, "book", operation.Keyed(time.Hour), s.bank.charge, undoBy[string]("book"))
					}
					return idem.Response{}, errors.Join(err, idem.Reject(declined))
				}
				if err := outsideStep(op, "call"); err != nil {
					return idem.Response{}, err
				}
				if _, err := operation.Tx(op, "book", write("book")); err != nil {
					return idem.Response{}, err
				}
				if err := operation.Exec(op, "bad", guilty); err != nil {
					return created, nil // whatever the function makes of it
				}
				if test.behind != nil {
					return created, test.behind(op)
				}
				return created, nil
			})
			var parked *operation.ParkedError
			_, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0))
			if !errors.As(err, &parked) || !errors.Is(parked.Cause, idem.ErrTxEnded) {
				t.Fatalf("got %v, want that it is parked", err)
			}
			kind := "tx"
			if test.undone {
				kind = "undo"
			}
			for _, name := range []string{kind + ` "book"`, kind + ` "bad"`} {
				if parked.Reason != operation.ReasonTxEnded || !strings.Contains(parked.ReasonText, name) {
					t.Errorf("the reason %s, %q lacks %s", parked.Reason, parked.ReasonText, name)
				}
			}
			for range 3 {
				if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0)); !errors.Is(err, operation.ErrParked) {
					t.Errorf("again: %v", err)
				}
			}
			if got := s.did(); !cmp.Equal(got, []string{"book"}) {
				t.Errorf("committed is %q", got)
			}
			mended = true
			if _, err := s.pool.Exec(t.Context(), `delete from done`); err != nil { // by hand
				t.Fatal(err)
			}
			if err := operation.Retry(t.Context(), s.pool, parked.OperationID); err != nil {
				t.Fatal(err)
			}
			if result, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0); err != nil || result.Rejected != test.undone {
				t.Errorf("with the mended code: %+v, %v", result, err)
			}
			if got := s.did(); len(got) == 0 || slices.Index(got, "book") != 0 || slices.Contains(got[1:], "book") {
				t.Errorf("committed with the mended code is %q", got)
			}
		})
	}
}

// Before anything of the operation is recorded, the key is refused, as with idem.Do.
func TestTxEnded_InTheFirstTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	d := define(func(op *operation.Op) error {
		if _, err := operation.Tx(op, "book", write("book")); err != nil {
			return err
		}
		return operation.Exec(op, "bad", func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), "commit")
			return err
		})
	})
	for range 3 {
		if _, err := d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(time.Millisecond)); !errors.Is(err, idem.ErrTxEnded) {
			t.Error(err)
		}
	}
	if got := s.did(); !cmp.Equal(got, []string{"book"}) {
		t.Errorf("committed is %q", got)
	}
}
