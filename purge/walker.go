package purge

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// walker walks through the parts of a table (its partitions, or the table itself), and counts what
// it has done.
type walker struct {
	engine  txn.Engine
	options *Options
	table   table
	sweeper db.Sweeper
	limits  db.LimitPortion

	taken bool // this run holds the row in idem.sweeps
	waits bool // commits wait for the disk, because the server has refused HurryPortion
	whole db.TakeSweepRow
	pace  pace
	brake brake
	began time.Time
	first time.Time // when the sweep of the first table began
	did   Sweep
}

// walkPart walks a part, from block to the last block that the part had when its size was read.
// Rows in blocks that were appended later are not due yet.
func (w *walker) walkPart(ctx context.Context, part *db.Part, block int64) error {
	statement := deletionOf(w.table, part)
	if w.options.DryRun {
		statement = countingOf(w.table, part)
	}
	for block < part.Pages {
		p := &portion{
			statement: statement, limits: w.limits, keep: w.table.keep(w.options), waits: w.waits,
			from: block, to: min(block+w.pace.pages, part.Pages),
		}
		pause, err := w.step(ctx, part, p)
		if err != nil {
			return err
		}
		if p.done {
			block = p.to
		}
		if err := txn.Sleep(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// step does one portion, or waits once. It returns how long the caller must pause.
func (w *walker) step(ctx context.Context, part *db.Part, p *portion) (time.Duration, error) {
	if w.options.Max > 0 && time.Since(w.first) >= w.options.Max {
		return 0, ended(TimeIsUp)
	}
	reason, err := w.brake.check(ctx, part.OID)
	switch {
	case err != nil:
		return 0, err
	case reason == Replication:
		w.did.Standby = w.brake.backlog.Standby
		fallthrough
	case reason != "":
		return 0, w.brake.wait(ctx, reason)
	}
	begin := time.Now()
	switch err := w.do(ctx, part, p); {
	case txn.LockTimedOut(err):
		return 0, w.brake.wait(ctx, Lock)
	case hurryRefused(err) && !w.waits:
		w.waits = true
		return 0, nil
	case tookTooLong(err) && ctx.Err() == nil && w.pace.halve():
		return w.pace.pause(workLimit), nil
	case err != nil:
		return 0, err
	}
	w.brake.done()
	w.reportProgress("")
	return w.pace.after(p.took, time.Since(begin)-p.took), nil
}

// do deletes the rows of one portion, or counts them if DryRun is set.
func (w *walker) do(ctx context.Context, part *db.Part, p *portion) error {
	if w.options.DryRun {
		err := p.count(ctx, &w.engine)
		if err == nil {
			w.note(p)
			w.whole.Pages += p.counts.Pages
		}
		return err
	}
	advance, err := p.delete(ctx, &w.engine, w.sweeper, db.Position{Part: part.Name, Block: p.to})
	if err != nil {
		return err
	}
	w.note(p)
	if !advance.Found { // another run has taken over; the deletions are valid all the same
		w.taken = false
		return ended(Elsewhere)
	}
	w.whole.Pages, w.whole.TotalPages = advance.Pages, advance.TotalPages
	return nil
}

func (w *walker) note(p *portion) {
	p.done = true
	w.did.add(p.counts)
	w.did.Working += p.took
}

// reportProgress calls Options.Progress.
func (w *walker) reportProgress(waiting Reason) {
	w.options.Progress(Progress{
		Counts: w.did.Counts, Table: w.table.name, WalkedPages: w.whole.Pages, TotalPages: w.whole.TotalPages,
		Waiting: waiting, PagesAPortion: int(w.pace.pages), Duration: time.Since(w.began),
	})
}
