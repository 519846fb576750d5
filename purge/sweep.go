package purge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// sweep is the work of one run on one table. A run sweeps all tables, one after the other.
type sweep struct {
	walker
	every  time.Duration // minimum time since the start of the last sweep
	ending bool          // FinishSweep was sent; its answer may have been lost
}

func newSweep(pool *pgxpool.Pool, o *Options, t table, sweeper string, every time.Duration) *sweep {
	s := &sweep{every: every, walker: walker{
		options: o, table: t, limits: limits, pace: newPace(o), began: time.Now(), first: time.Now(),
		engine:  txn.Engine{Pool: pool, Options: deleting, Limits: txn.DefaultLimits},
		sweeper: db.Sweeper{Name: t.name, ID: sweeper},
		did:     Sweep{Table: t.name, Waited: map[Reason]time.Duration{}},
	}}
	if o.DryRun {
		s.engine.Options = readsOnly
	}
	s.brake = brake{engine: &s.engine, options: o, sweeper: s.sweeper, report: s.reportProgress, waited: s.did.Waited}
	return s
}

// run sweeps the table, and retries after a transient error. It always stores in s.did what it has
// done.
func (s *sweep) run(ctx context.Context) error {
	defer func() {
		s.did.Duration, s.did.Hidden = time.Since(s.began), s.brake.backlog.Hidden
		s.leave(ctx)
	}()
	for {
		err := s.walk(ctx)
		if s.taken && retryable(err) && ctx.Err() == nil && s.brake.wait(ctx, Server) == nil {
			continue
		}
		var end ended
		switch {
		case errors.As(err, &end):
			s.did.Ended = Reason(end)
			return nil
		case ctx.Err() != nil:
			s.did.Ended = Stopped
			return ctx.Err()
		}
		s.did.Ended = Failed
		return hint(err)
	}
}

// walk starts or resumes the sweep, and walks to the end of the table.
func (s *sweep) walk(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	at := s.whole.Position
	var gone error // the error of the last part, which seems to have been dropped
	var last int64
	for from := at.Part; ; {
		part := db.Part{Relation: s.table.relation, FromPart: from}
		if err := s.brake.find(ctx, &part, s.taken); err != nil {
			return err
		}
		switch {
		case gone != nil && part.OID == last: // the part still exists, so another table is missing
			return gone
		case !part.Found:
			return s.finish(ctx)
		}
		block := int64(0)
		if part.Name == at.Part {
			block = at.Block
		}
		gone, last = nil, part.OID
		switch err := s.walkPart(ctx, &part, block); {
		case txn.HasCode(err, "42P01"):
			gone, from, at = err, part.Name, db.Position{}
		case err != nil:
			return err
		default:
			from = part.Name + "\x01" // the smallest name after part.Name
		}
	}
}

// absence is the age of a heartbeat after which another run takes over the sweep. It is twice as
// long as a portion and a pause can take. If the first run was only slow, it notices at its next
// portion that another run has taken over.
const absence = 2 * (workLimit + maxPause)

// take claims the sweep for this run, by storing the id of the run in the row of the table in
// idem.sweeps.
func (s *sweep) take(ctx context.Context) error {
	first := db.Part{Relation: s.table.relation}
	if err := s.brake.find(ctx, &first, s.taken); err != nil {
		return err
	}
	if !first.Found {
		return fmt.Errorf("the table %s is missing; run the migrations of package migrations", s.table.relation)
	}
	rest := s.every
	if s.ending {
		rest = math.MaxInt64 // do not start another sweep
	}
	s.whole = db.TakeSweepRow{TotalPages: first.TotalPages}
	if s.options.DryRun {
		return nil
	}
	take := db.TakeSweep{Sweeper: s.sweeper, TablePages: first.TotalPages, Absence: absence, Rest: rest}
	if err := ask(ctx, &s.engine, &take); err != nil {
		return err
	}
	switch {
	case !take.Found && s.ending: // no sweep is left to resume, so FinishSweep has succeeded
		s.taken = false
		return ended(Finished)
	case !take.Found:
		return ended(Elsewhere)
	}
	s.whole = take.TakeSweepRow
	s.did.Resumed = s.did.Resumed || !s.taken && s.whole.Pages > 0
	s.taken = true
	return nil
}

func (s *sweep) finish(ctx context.Context) error {
	if s.options.DryRun {
		return ended(Finished)
	}
	s.ending = true
	finish := db.FinishSweep{Sweeper: s.sweeper}
	if err := ask(ctx, &s.engine, &finish); err != nil {
		return err
	}
	if !finish.Found {
		return ended(Elsewhere)
	}
	s.taken = false
	return ended(Finished)
}

// leaveLimit is the time limit of leave. If leave fails, the next run can take over only after the
// time absence.
const leaveLimit = 2 * time.Second

// leave releases the row in idem.sweeps, so that another run can resume the sweep at once.
func (s *sweep) leave(ctx context.Context) {
	if !s.taken {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	_ = ask(bounded, &s.engine, db.LeaveSweep{Sweeper: s.sweeper})
}
