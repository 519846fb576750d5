package purge

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/txn"
)

// How often it is looked whether a sweep may go on.
const (
	lookEvery  = time.Second // while it does
	firstPause = 100 * time.Millisecond
	lastPause  = 2 * time.Second
)

// How long a sweep waits without asking the server why.
const (
	poolLimit   = time.Second // a portion gives way to others at the pool: they may keep it used up for good
	serverLimit = time.Minute // a server that is not there
)

// brake keeps a sweep from going on while it would harm others.
type brake struct {
	engine  *txn.Engine
	options *Options
	sweeper db.Sweeper
	tell    func(waiting Reason)

	reason  Reason // of the wait that is going on; empty if there is none
	since   time.Time
	pause   txn.Pauses
	looked  time.Time // when the server was asked for its backlog
	backlog db.Backlog
	waited  map[Reason]time.Duration
}

// mayGoOn returns why a sweep has to wait, empty if it need not. The server is asked now and then.
func (h *brake) mayGoOn(ctx context.Context, part int64) (Reason, error) {
	if err := h.giveWay(ctx); err != nil || h.options.DryRun {
		return "", err
	}
	if h.reason == "" && time.Since(h.looked) < lookEvery && h.backlog.OID == part || h.options.MaxLag < 0 && h.options.MaxDead < 0 {
		return "", nil
	}
	h.backlog = db.Backlog{OID: part}
	if err := ask(ctx, h.engine, &h.backlog); err != nil {
		return "", err
	}
	h.looked = time.Now()
	switch {
	case h.options.MaxLag >= 0 && h.backlog.Lag > h.options.MaxLag:
		return Replication, nil
	case h.options.MaxDead >= 0 && h.backlog.Dead > h.options.MaxDead:
		return Vacuum, nil
	}
	return "", nil
}

// giveWay waits while every connection of the pool is in use.
func (h *brake) giveWay(ctx context.Context) error {
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
		h.tell(Pool)
		if err := txn.Sleep(ctx, pause.Next()); err != nil {
			return err
		}
	}
	return nil
}

// wait waits a little for what keeps the sweep from going on, and says so to all. When it has waited for as long as it
// may, the sweep ends.
func (h *brake) wait(ctx context.Context, reason Reason) error {
	limit := h.options.Patience
	if reason == Server {
		limit = min(limit, serverLimit)
	}
	if h.reason != reason {
		h.reason, h.since, h.pause = reason, time.Now(), txn.Pauses{Current: firstPause, Limit: lastPause}
	}
	if time.Since(h.since) >= limit {
		return ended(reason)
	}
	if reason != Server && !h.options.DryRun {
		sign := db.HoldSweep{Sweeper: h.sweeper, WaitingFor: string(reason)}
		if err := ask(ctx, h.engine, &sign); err != nil {
			return err
		}
		if !sign.Found {
			return ended(Elsewhere)
		}
	}
	h.tell(reason)
	begin := time.Now()
	err := txn.Sleep(ctx, h.pause.Next())
	h.waited[reason] += time.Since(begin)
	return err
}

// find asks for a part. Its size cannot be read while it is locked against all others, as VACUUM FULL does.
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

// goOn notes that the sweep does.
func (h *brake) goOn() { h.reason = "" }
