package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// A handler can commit its transaction by a statement, and begin another one that looks the same. Then every message that the attempt
// has claimed is on record as handled, also those whose handler has not run, or has run in a transaction that was rolled back. So an
// attempt that has failed, however that was, is asked for on the record before anything is made of its error.

// enders returns the messages whose handlers may have committed the transaction, and those before them, which are committed with their
// effects. It is the last handler if its connection was left without a transaction, or if it was the only one: otherwise it may be any
// of those that have run, and the effects of those behind it are lost. Those that no handler was given are among neither.
func (a *attempt) enders() (handled, suspects []*delivery) {
	first := 0
	if a.idle && a.handler.each != nil {
		first = a.given - 1
	}
	return a.claimed[:first], a.claimed[first:a.given]
}

// committed tells whether what the attempt has claimed is on record. The messages of an attempt are claimed by one transaction, so one of
// them tells.
func (a *attempt) committed(ctx context.Context) (bool, error) {
	load := store.LoadMessages{}
	err := a.insist(ctx, func(ctx context.Context) error {
		load = store.LoadMessages{Messages: a.messages(a.claimed[:1])}
		return a.engine.Query(ctx, &load)
	})
	for i := range load.Known {
		k := &load.Known[i]
		if k.State == store.MessageHandled && k.Since.Equal(a.byID[k.MessageID].since) {
			return true, err
		}
	}
	return false, err
}

// release forgets what was claimed and not handled.
func (a *attempt) release(ctx context.Context, group []*delivery) error {
	var at []time.Time
	for _, d := range group {
		if !slices.Contains(at, d.since) {
			at = append(at, d.since)
		}
	}
	return a.insist(ctx, func(ctx context.Context) error {
		for _, t := range at {
			if err := a.engine.Query(ctx, store.ReleaseMessages{Messages: a.messages(group), At: t}); err != nil {
				return err
			}
		}
		return nil
	})
}

// insist asks the database for as long as it asks for the outcome of a COMMIT, whatever happens to the caller meanwhile: messages
// would be lost.
func (a *attempt) insist(ctx context.Context, ask func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.settings.limits.resolve)
	defer cancel()
	for pause := txn.RetryPause; ; {
		err := ask(bounded)
		if err == nil || !txn.Transient(err) || txn.Sleep(bounded, pause.Next()) != nil {
			return err
		}
	}
}
