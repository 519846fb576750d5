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

// sweep is the work of one run on one table.
type sweep struct {
	walker
	every  time.Duration // how long after the beginning of another sweep there is no need for this one
	ending bool          // it has asked for its end, and may not have heard the answer
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
	s.brake = brake{engine: &s.engine, options: o, sweeper: s.sweeper, tell: s.tell, waited: s.did.Waited}
	return s
}

// run sweeps, and goes on after what passes by itself. Whatever happens, it says in s.did what was done.
func (s *sweep) run(ctx context.Context) error {
	defer func() {
		s.did.Duration, s.did.Hidden = time.Since(s.began), s.brake.backlog.Hidden
		s.leave(ctx)
	}()
	for {
		err := s.walk(ctx)
		if s.taken && passes(err) && ctx.Err() == nil && s.brake.wait(ctx, Server) == nil {
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

// walk takes the sweep up where it is, and goes on to its end.
func (s *sweep) walk(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	at := s.whole.Position
	var gone error // why the last part could not be walked: it seems to be there no more
	var last int64
	for from := at.Part; ; {
		part := db.Part{Relation: s.table.relation, FromPart: from}
		if err := s.brake.find(ctx, &part, s.taken); err != nil {
			return err
		}
		switch {
		case gone != nil && part.OID == last: // it is something else that is missing
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
			from = part.Name + "\x01" // nothing is between the two
		}
	}
}

// absence is how long without a sign of life a sweeper is there: a portion and a pause, and what may come on top. One that was
// only slow finds out with its next portion that another run has taken over.
const absence = 2 * (workLimit + maxPause)

// take makes this run the sweeper.
func (s *sweep) take(ctx context.Context) error {
	first := db.Part{Relation: s.table.relation}
	if err := s.brake.find(ctx, &first, s.taken); err != nil {
		return err
	}
	if !first.Found {
		return fmt.Errorf("%s is missing, run the migrations of package migrations", s.table.relation)
	}
	rest := s.every
	if s.ending {
		rest = math.MaxInt64 // it need not begin again
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
	case !take.Found && s.ending: // nothing is left to resume: the sweep has ended
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

// leaveLimit is how long it may take to say that no process sweeps any more. If it does not work, the next run waits for absence.
const leaveLimit = 2 * time.Second

// leave lets another run go on at once.
func (s *sweep) leave(ctx context.Context) {
	if !s.taken {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	_ = ask(bounded, &s.engine, db.LeaveSweep{Sweeper: s.sweeper})
}
