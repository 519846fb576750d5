package checkout

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// The methods below act as a person who operates the service.

// meddle acts as a person after a call: it cancels an operation now and then, and handles parked
// ones.
func (s *shop) meddle(e *journal.Event, parked *operation.ParkedError) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch {
	case parked != nil && rand.IntN(6) == 0:
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		s.cancel(ctx, parked.OperationID)
	case parked != nil && rand.IntN(2) == 0:
		s.seeTo(ctx, parked.OperationID)
	case e.Verb == journal.Start && e.Operation != "" && rand.IntN(12) == 0:
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		s.cancel(ctx, e.Operation)
	case rand.IntN(50) == 0:
		if id := s.recent.one(); id != "" {
			s.cancel(ctx, id)
		}
	case rand.IntN(20) == 0:
		s.visit(ctx)
	}
}

// visit handles or cancels a parked child. No caller is notified of a parked child.
func (s *shop) visit(ctx context.Context) {
	const parked = "SELECT id::text FROM idem.operations WHERE state = 'parked' AND parent IS NOT NULL ORDER BY random() LIMIT 1"
	var id string
	switch err := s.pool.QueryRow(ctx, parked).Scan(&id); {
	case err != nil:
	case rand.IntN(5) == 0:
		s.cancel(ctx, id)
	default:
		s.seeTo(ctx, id)
	}
}

// cancel cancels an operation, sometimes WithoutCalling, and sometimes twice. The second Cancel
// must have no effect.
func (s *shop) cancel(ctx context.Context, id string, opts ...operation.CancelOption) {
	if rand.IntN(3) == 0 {
		opts = append(opts, operation.WithoutCalling())
	}
	for range 1 + rand.IntN(4)/3 {
		_ = operation.Cancel(ctx, s.pool, id, opts...)
	}
}

// seeTo handles a parked operation. A call in doubt is resolved by the books of the bank, and any
// other operation is retried. A canceled operation whose code has changed may be canceled
// WithoutCode.
func (s *shop) seeTo(ctx context.Context, id string) {
	status, err := operation.Show(ctx, s.pool, id)
	switch {
	case err != nil || status.State != operation.StateParked:
	case status.Reason == operation.ReasonCallInDoubt && (s.calm || rand.IntN(4) > 0):
		s.settle(ctx, id, &status)
	case status.Canceled && status.Reason != operation.ReasonCallInDoubt && !s.calm && rand.IntN(8) == 0:
		s.cancel(ctx, id, operation.WithoutCode())
	default:
		_ = operation.Retry(ctx, s.pool, id)
	}
}

// errRefused is the error with which a person resolves a call that the bank refused.
var errRefused = operation.Final(bank.ErrDeclined)

// settle resolves a call in doubt by the books of the bank. After LookUp the bank refuses requests
// for the step that were sent earlier, so NotHappened stays true.
func (s *shop) settle(ctx context.Context, id string, status *operation.Status) {
	isUndo := status.Kind == "undo"
	step := status.Step
	if isUndo {
		step = journal.UndoOf(status.Step, 0) // the second undo is a Tx and is never in doubt
	}
	reply, err := s.bank.LookUp(ctx, bank.Request{Operation: id, Step: step})
	if err != nil {
		return
	}
	finding := operation.NotHappened
	switch {
	case reply.Done && isUndo:
		finding = operation.Happened(nil)
	case reply.Done:
		finding = operation.Happened(reply.Receipt)
	// Not for card A, whose function expects an error of a certain type.
	case strings.HasPrefix(step, "charge-") && rand.IntN(3) == 0:
		finding = operation.Refused(errRefused)
	}
	_ = operation.Resolve(ctx, s.pool, id, finding.As(*status).Of(status.Step))
}

// parkedOf returns the ParkedError in err, or nil.
func parkedOf(err error) *operation.ParkedError {
	parked, _ := errors.AsType[*operation.ParkedError](err)
	return parked
}
