package outbox

import (
	"context"

	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// settle writes down the outcome of a batch, whether or not ctx has ended.
func (w *worker) settle(ctx context.Context, o *outcome) error {
	written := w.written(o)
	if len(written) > 0 {
		requests := append([]txn.Request{begin, &store.LimitRelay{}}, written...)
		if err := w.ask(context.WithoutCancel(ctx), settleLimit, append(requests, commit)...); err != nil {
			return err
		}
	}
	w.tell(o)
	*o = outcome{}
	return nil
}

// written returns the requests that write an outcome down, with a fence before them if there are any.
func (w *worker) written(o *outcome) []txn.Request {
	requests := o.requests(w.config)
	if len(requests) == 0 {
		return nil
	}
	return append(w.post.fence(), requests...)
}

// tell tells of dead letters, once they are.
func (w *worker) tell(o *outcome) {
	if w.config.OnDead == nil {
		return
	}
	for i := range o.failed {
		if o.failed[i].bury != nil {
			guard.Do(w.config.Logger, "outbox: OnDead", func() { w.config.OnDead(o.failed[i].letter()) })
		}
	}
}
