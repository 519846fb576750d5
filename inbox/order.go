package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// order keeps messages of a call behind those of their key that come before them.
type order struct {
	all []*delivery // of the call, in their order
}

// wait postpones what has to wait for messages that were delivered earlier, and are to be tried again.
func (o *order) wait(ctx context.Context, r *registry) error {
	failing := db.FailingMessages{Consumer: r.consumer}
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
	known := map[keyOf][]db.FailingMessage{}
	for _, f := range failing.Rows {
		key := keyOf{f.Source, f.Key}
		known[key] = append(known[key], f)
	}
	pauses := map[*delivery]time.Duration{}
	var waiting []*delivery
	for key, failing := range known {
		for i, d := range byKey[key] {
			if pause, waits := waitsFor(d, byKey[key][:i], byKey[key][i+1:], failing); waits {
				pauses[d] = max(pause, r.settings.minBackoff/8, time.Millisecond)
				waiting = append(waiting, d)
			}
		}
	}
	waiting, err := r.open(ctx, waiting)
	for _, d := range waiting {
		d.postpone(pauses[d], ErrBehind)
	}
	return err
}

// open returns those that have not been handled. Another delivery of a message that has been comes before whatever is failing
// of its key, and no message would get past it if it waited for that.
func (r *registry) open(ctx context.Context, group []*delivery) ([]*delivery, error) {
	if len(group) == 0 {
		return nil, nil
	}
	byID, messages := r.messages(group)
	load := db.LoadMessages{Messages: messages}
	err := r.engine.Query(ctx, &load)
	for i := range load.Rows {
		if k := &load.Rows[i]; k.State != db.MessageFailing {
			delete(byID, k.MessageID)
		}
	}
	return slices.DeleteFunc(group, func(d *delivery) bool { return byID[d.id()] == nil }), err
}

// waitsFor tells whether a delivery has to wait for one of the failing messages of its key, which are in the order in which they
// have failed first. It need not wait for those behind itself, nor for those that have failed first together with it, nor for one
// that is due and comes before it in the call.
func waitsFor(d *delivery, earlier, later []*delivery, failing []db.FailingMessage) (pause time.Duration, waits bool) {
	i := slices.IndexFunc(failing, func(f db.FailingMessage) bool { return f.MessageID == d.id() })
	for _, f := range failing {
		if i >= 0 && !f.Since.Before(failing[i].Since) {
			return 0, false
		}
		passed := slices.ContainsFunc(later, func(l *delivery) bool { return l.id() == f.MessageID })
		for _, e := range earlier {
			passed = passed || e.id() == f.MessageID && !e.isSettled() && f.Remaining <= 0
		}
		if !passed {
			return f.Remaining, true
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
		case d.isSettled() && d.outcome.State == Retry && before == nil:
			held[key] = d
		case !d.isSettled() && before != nil:
			d.putOffUntil(before.outcome.RetryAt, ErrBehind)
		}
	}
}
