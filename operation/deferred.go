package operation

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/internal/store"
)

// blame prepares another run after a COMMIT that the server has refused, as because of a deferred constraint: constraints are checked
// behind the last Tx of that transaction, which gets the error. If they have been, the one before it is next. It reports whether there
// is such a Tx.
func (op *Op) blame(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || op.work.epoch == 0 {
		return false
	}
	w := op.work
	for i := len(op.pending) - 1; i >= 0; i-- {
		s := &op.pending[i].Step
		inTx := s.Kind == store.TxStep && s.Outcome == store.StepDone || s.Kind == store.UndoTxStep && s.Outcome == store.StepUndone
		if !inTx || w.checked[s.Seq] {
			continue
		}
		if w.checked == nil {
			w.checked = map[int]bool{}
		}
		w.checked[s.Seq] = true
		return true
	}
	return false
}
