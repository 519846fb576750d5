package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// order keeps messages of a call behind those of their key that come before them.
type order struct {
	all []*delivery // of the call, in their order
}

// wait postpones what has to wait for messages that were delivered earlier, and are to be tried again.
func (o *order) wait(ctx context.Context, r *registry) error {
	failing := store.FailingMessages{Consumer: r.consumer}
	byKey := map[keyOf][]*delivery{}
	for _, d := range o.all {
		key, ok := d.key()
		if !ok {
			continue
		}
		if byKey[key] == nil {
			failing.Sources, failing.Keys = append(failing.Sources, key.source), append(failing.Keys, key.key)
		}
		byKey[key] = append(byKey[key], d)
	}
	if len(failing.Keys) == 0 {
		return nil
	}
	if err := r.engine.Query(ctx, &failing); err != nil {
		return err
	}
	known := map[keyOf][]store.FailingMessage{}
	for _, f := range failing.Failing {
		key := keyOf{f.Source, f.Key}
		known[key] = append(known[key], f)
	}
	if len(known) == 0 {
		return nil
	}
	handled, err := o.handled(ctx, r, known)
	if err != nil {
		return err
	}
	for key, failing := range known {
		for i, d := range byKey[key] {
			pause, waits := waitsFor(d, byKey[key][:i], byKey[key][i+1:], failing)
			if waits && !handled[d.id()] {
				d.postpone(max(pause, r.settings.minPause/8, time.Millisecond), ErrBehind)
			}
		}
	}
	return nil
}

// handled returns which messages of these keys are not to be tried any more: they wait for nobody.
func (o *order) handled(ctx context.Context, r *registry, keys map[keyOf][]store.FailingMessage) (map[store.MessageID]bool, error) {
	var group []*delivery
	for _, d := range o.all {
		if key, ok := d.key(); ok && keys[key] != nil {
			group = append(group, d)
		}
	}
	_, messages := r.messages(group)
	load := store.LoadMessages{Messages: messages}
	if err := r.engine.Query(ctx, &load); err != nil {
		return nil, err
	}
	handled := map[store.MessageID]bool{}
	for _, k := range load.Known {
		handled[k.MessageID] = k.State != store.MessageFailing
	}
	return handled, nil
}

// waitsFor tells whether a delivery has to wait for one of the failing messages of its key, which are in the order in which they
// have failed first. It need not wait for those behind itself, be it in that order or in the call, nor for one that is due and
// comes before it in the call.
func waitsFor(d *delivery, earlier, later []*delivery, failing []store.FailingMessage) (pause time.Duration, waits bool) {
	for _, f := range failing {
		is := func(e *delivery) bool { return e.id() == f.MessageID }
		tried := func(e *delivery) bool { return is(e) && !e.settled && f.Pause <= 0 }
		switch {
		case is(d):
			return 0, false
		case slices.ContainsFunc(later, is), slices.ContainsFunc(earlier, tried):
		default:
			return f.Pause, true
		}
	}
	return 0, false
}

// holdBack postpones what has to wait for messages of this call that are to be tried again.
func (o *order) holdBack() {
	held := map[keyOf]*delivery{}
	for _, d := range o.all {
		key, ok := d.key()
		switch before := held[key]; {
		case !ok:
		case d.settled && d.outcome.State == Retry && before == nil:
			held[key] = d
		case !d.settled && before != nil:
			d.settle(Outcome{State: Retry, RetryAt: before.outcome.RetryAt, Err: ErrBehind})
			d.blameless = true
		}
	}
}
