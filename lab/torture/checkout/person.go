package checkout

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/lab/torture/bank"
	"github.com/idem-go/idem/lab/torture/journal"
	"github.com/idem-go/idem/operation"
)

// The methods below act as a person who operates the service.

// meddle acts as a person after a call: it cancels an operation now and then, and handles parked
// operations.
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

// visit handles or cancels a random parked child, because no caller is notified of a parked child.
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

// seeTo handles a parked operation. It usually resolves a call in doubt by the books of the bank,
// and otherwise retries the operation. It sometimes cancels a canceled operation again,
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
	reply, err := bank.LookUp.Send(ctx, s.bank, bank.Request{Operation: id, Step: step})
	if err != nil {
		return
	}
	finding := operation.NotHappened
	switch {
	case reply.Done && isUndo:
		finding = operation.Happened(nil)
	case reply.Done:
		finding = operation.Happened(reply.Receipt)
	// The call of card A is never resolved as refused: its function expects an error of a certain
	// type.
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

// finishAll runs the remaining operations after all workers have ended, until each operation has
// ended or ctx ends.
//
// It deploys one release after the other, because some release has all recorded steps of an
// operation: the one that recorded the last step. After each release it handles all parked
// operations as a person would. Leases of the workers are deleted and long sleeps are shortened, so
// that nothing waits.
//
// A release gets at most half of the remaining time, so that an operation without progress does not
// block the others. The audit reports the operations that have not ended when ctx ends.
func (s *shop) finishAll(ctx context.Context) error {
	s.calm, s.pool = true, s.pools[1] // the larger pool
	if _, err := s.pool.Exec(ctx, "DELETE FROM idem.leases"); err != nil {
		return err
	}
	if _, err := s.seeToAll(ctx); err != nil {
		return err
	}
	const rounds = 5
	for deployed := range rounds * journal.Releases {
		s.release = journal.Releases - 1 - deployed%journal.Releases
		s.define()
		err := s.finish(ctx)
		left := 0
		if err == nil {
			left, err = s.seeToAll(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil || left == 0:
			return err
		}
	}
	if err := s.finish(ctx); ctx.Err() == nil {
		return err
	}
	return nil
}

// finish runs a Worker until no operation is running, or half of the time of ctx has passed.
func (s *shop) finish(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		bounded, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
		ctx = bounded
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		config := operation.WorkerConfig{Concurrency: 32, Poll: time.Second / 2, Drain: time.Second, Logger: slog.New(slog.DiscardHandler)}
		ended <- operation.NewWorker(s.pool, config, s.checkout, s.walkIn, s.part).Run(working)
	}()
	err := awaitEnd(ctx, s.pool)
	stop()
	if ended := <-ended; err == nil {
		err = ended
	}
	return err
}

// seeToAll handles all parked operations as a person would, and returns their number.
func (s *shop) seeToAll(ctx context.Context) (int, error) {
	rows, err := s.pool.Query(ctx, "SELECT id::text FROM idem.operations WHERE state = 'parked'")
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, id := range ids {
		s.seeTo(ctx, id)
	}
	return len(ids), err
}

// awaitEnd waits until no operation is running, or until ctx ends. An operation that awaits a
// parked child does not count as running.
func awaitEnd(ctx context.Context, pool *pgxpool.Pool) error {
	const due = "UPDATE idem.operations SET wake_at = clock_timestamp() WHERE state = 'running' AND kind <> 'child' AND wake_at > clock_timestamp() + '2 s'"
	const left = `WITH RECURSIVE waits AS (
		SELECT parent AS id FROM idem.operations WHERE state = 'parked'
		UNION SELECT o.parent FROM idem.operations o JOIN waits w ON w.id = o.id)
	SELECT count(*) FROM idem.operations WHERE state = 'running' AND NOT EXISTS (SELECT FROM waits w WHERE w.id = operations.id)`
	for ctx.Err() == nil {
		var running int
		if _, err := pool.Exec(ctx, due); err != nil && ctx.Err() == nil {
			return err
		}
		if err := pool.QueryRow(ctx, left).Scan(&running); err != nil && ctx.Err() == nil {
			return err
		}
		if running == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
