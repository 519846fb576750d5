package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// repair sees to what a handler has left that ended the transaction. If it was rolled back, the handler has failed as others do.
// If a statement of the handler has committed it, so are the messages before it, with their effects; it is a dead letter at once,
// because what it has committed cannot be undone; and those behind it are written down as handled, and were not: that is taken
// back. Where it is not known who it was, all of them are dead letters.
func (c *call) repair(ctx context.Context, a *attempt, e ending) [][]*delivery {
	committed, err := c.committed(ctx, a)
	switch {
	case err != nil:
		c.stopped = e.err
		c.postpone(a.claimed, e.err)
		return nil
	case !committed:
		return c.blame(ctx, a, e)
	}
	first, behind := 0, len(a.claimed)
	if e.culprit == nil && len(a.claimed) == 1 {
		e.culprit = a.claimed[0]
	}
	if e.culprit != nil {
		first = slices.Index(a.claimed, e.culprit)
		behind = first + 1
	}
	if err := c.release(ctx, a, a.claimed[first:]); err != nil {
		c.stopped = e.err
		c.postpone(a.claimed, e.err)
		return nil
	}
	for _, d := range a.claimed[:first] {
		d.settle(Outcome{State: Done})
	}
	for _, d := range a.claimed[first:behind] {
		c.registered(ctx, c.registry.bury(ctx, d, d.ID, d.attempts+1, e.err))
	}
	return [][]*delivery{a.claimed[behind:]}
}

// committed tells whether what the attempt has claimed is on record.
func (c *call) committed(ctx context.Context, a *attempt) (bool, error) {
	load := store.LoadMessages{}
	err := c.insist(ctx, func(ctx context.Context) error {
		load = store.LoadMessages{Messages: a.messages(a.claimed)}
		return c.engine.Query(ctx, &load)
	})
	for i := range load.Known {
		k := &load.Known[i]
		if k.State == store.MessageHandled && k.Since.Equal(a.byID[k.MessageID].since) {
			return true, err
		}
	}
	return false, err
}

func (c *call) release(ctx context.Context, a *attempt, group []*delivery) error {
	var at []time.Time
	for _, d := range group {
		if !slices.Contains(at, d.since) {
			at = append(at, d.since)
		}
	}
	return c.insist(ctx, func(ctx context.Context) error {
		for _, t := range at {
			if err := c.engine.Query(ctx, store.ReleaseMessages{Messages: a.messages(group), At: t}); err != nil {
				return err
			}
		}
		return nil
	})
}

// insist asks the database for as long as it asks what became of a COMMIT, whatever becomes of the caller meanwhile: messages
// would be lost.
func (c *call) insist(ctx context.Context, ask func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.limits.resolve)
	defer cancel()
	for pause := txn.RetryPause; ; {
		err := ask(bounded)
		if err == nil || !txn.Transient(err) || txn.Sleep(bounded, pause.Next()) != nil {
			return err
		}
	}
}
