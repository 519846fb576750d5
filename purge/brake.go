package purge

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

const (
	checkEvery   = time.Second // how often a sweep that is not waiting asks the server whether it must
	minWaitPause = 100 * time.Millisecond
	maxWaitPause = 2 * time.Second
)

const (
	poolLimit   = time.Second // how long a portion lets other users of a full pool go first
	serverLimit = time.Minute // maximum wait for an unavailable server
)

// brake makes a sweep wait while deleting more would harm other users of the server or of the pool.
type brake struct {
	engine  *txn.Engine
	options *Options
	sweeper db.Sweeper
	report  func(waiting Reason)

	reason  Reason // the reason of the current wait; empty if the sweep is not waiting
	since   time.Time
	pause   txn.Pauses
	checked time.Time // when backlog was read
	backlog db.Backlog
	waited  map[Reason]time.Duration
}

// check returns why the sweep must wait, or "". Normally it reads the backlog of replication and
// vacuum at most once every checkEvery. While the sweep waits, or when it has reached another part
// of the table, check reads the backlog each time. part is the OID of the current part.
func (h *brake) check(ctx context.Context, part int64) (Reason, error) {
	if err := h.awaitPool(ctx); err != nil || h.options.DryRun {
		return "", err
	}
	if h.reason == "" && time.Since(h.checked) < checkEvery && h.backlog.OID == part || h.options.MaxLag < 0 && h.options.MaxDead < 0 {
		return "", nil
	}
	h.backlog = db.Backlog{OID: part}
	if err := ask(ctx, h.engine, &h.backlog); err != nil {
		return "", err
	}
	h.checked = time.Now()
	switch {
	case h.options.MaxLag >= 0 && h.backlog.Lag > h.options.MaxLag:
		return Replication, nil
	case h.options.MaxDead >= 0 && h.backlog.Dead > h.options.MaxDead:
		return Vacuum, nil
	}
	return "", nil
}

// awaitPool waits up to poolLimit while every connection of the pool is in use.
func (h *brake) awaitPool(ctx context.Context) error {
	begin := time.Now()
	defer func() {
		if waited := time.Since(begin); waited > time.Millisecond {
			h.waited[Pool] += waited
		}
	}()
	for pause := (txn.Pauses{Current: 2 * time.Millisecond, Limit: 50 * time.Millisecond}); time.Since(begin) < poolLimit; {
		if stat := h.engine.Pool.Stat(); stat.AcquiredConns() < stat.MaxConns() {
			break
		}
		h.report(Pool)
		if err := txn.Sleep(ctx, pause.Next()); err != nil {
			return err
		}
	}
	return nil
}

// wait pauses once because of reason, and stores the reason in idem.sweeps. If the sweep has
// already waited for Options.Patience, wait returns ended(reason). If another run has taken over
// the sweep, wait returns ended(Elsewhere).
func (h *brake) wait(ctx context.Context, reason Reason) error {
	limit := h.options.Patience
	if reason == Server {
		limit = min(limit, serverLimit)
	}
	if h.reason != reason {
		h.reason, h.since, h.pause = reason, time.Now(), txn.Pauses{Current: minWaitPause, Limit: maxWaitPause}
	}
	if time.Since(h.since) >= limit {
		return ended(reason)
	}
	if reason != Server && !h.options.DryRun {
		hold := db.HoldSweep{Sweeper: h.sweeper, WaitingFor: string(reason)}
		if err := ask(ctx, h.engine, &hold); err != nil {
			return err
		}
		if !hold.Found {
			return ended(Elsewhere)
		}
	}
	h.report(reason)
	begin := time.Now()
	err := txn.Sleep(ctx, h.pause.Next())
	h.waited[reason] += time.Since(begin)
	return err
}

// find reads the name and the size of the next part of the table (a partition, or the table itself)
// into part. While VACUUM FULL, for example, locks the part exclusively, Postgres cannot return the
// size. find then waits. If this run has not taken the sweep yet, find returns ended(Lock) instead.
func (h *brake) find(ctx context.Context, part *db.Part, taken bool) error {
	for {
		err := peek(ctx, h.engine, part)
		switch {
		case !txn.LockTimedOut(err):
			return err
		case !taken && !h.options.DryRun:
			return ended(Lock)
		}
		if err := h.wait(ctx, Lock); err != nil {
			return err
		}
	}
}

// done ends the current wait.
func (h *brake) done() { h.reason = "" }
