package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// What a handler has left that ended its transaction by a statement.

// committed tells whether what the attempt has claimed is on record.
func (a *attempt) committed(ctx context.Context) (bool, error) {
	load := store.LoadMessages{}
	err := a.insist(ctx, func(ctx context.Context) error {
		load = store.LoadMessages{Messages: a.messages(a.claimed)}
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

// insist asks the database for as long as it asks what became of a COMMIT, whatever becomes of the caller meanwhile: messages
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
