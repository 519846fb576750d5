package operation_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/operation"
)

// A canceled operation is undone although its function fails or panics behind its last recorded step. If its undo panics as well, the
// process releases the operation, and a later run undoes it.
func TestCancel_UndoThatPanicsReleasesTheOperation(t *testing.T) {
	t.Parallel()
	panics := func() error { panic("a mistake of the program") }
	fails := func() error { return errors.New("a mistake of the program") }
	passes := func() error { return &pgconn.PgError{Code: "40001"} }
	for name, in := range map[string]struct{ function, undo func() error }{
		"the function works, and the undo panics":                {func() error { return nil }, panics},
		"the function fails, and the undo panics":                {fails, panics},
		"the function panics, and the undo as well":              {panics, panics},
		"the function panics, and the undo is to be tried again": {panics, passes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var mistaken atomic.Bool
			var undos atomic.Int64
			d := operation.Define("mistaken", func(op *operation.Op, _ int) (idem.Response, error) {
				_, err := operation.Call(op, "charge", operation.Keyed(time.Hour), s.bank.charge, operation.UndoTx(func(tx pgx.Tx, _ string) error {
					if undos.Add(1); mistaken.Load() {
						return in.undo()
					}
					return writeUndo("refund")(tx)
				}))
				switch {
				case err != nil:
				case mistaken.Load():
					err = in.function()
				default:
					err = errors.New("not yet")
				}
				return created, err
			})
			goOn := func() {
				defer func() { _ = recover() }()
				_, _ = s.pool.Exec(t.Context(), `update idem.operations set wake_at = clock_timestamp()`) // the pause is over
				_, _ = d.Do(t.Context(), s.pool, scope, "k", hashA, 0, idem.WithWait(0), idem.WithRetries(0))
			}
			goOn()
			mistaken.Store(true)
			if err := operation.Cancel(t.Context(), s.pool, s.operationID()); err != nil {
				t.Fatal(err)
			}
			for range 8 {
				goOn()
			}
			if undos.Load() == 0 {
				t.Fatal("no undo was tried")
			}
			mistaken.Store(false)
			eventually(t, "the operation to be undone", func() bool {
				goOn()
				return s.text(`select state from idem.operations`) == "undone"
			})
		})
	}
}
