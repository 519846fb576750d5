package inbox

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// A message that kills its process leaves one trace: the broker delivers it again. So an attempt at a redelivered message is
// announced: counted in a transaction of its own before it begins. The message is tried alone, because the next one would
// otherwise pay for it. The count stands if the attempt fails or never ends, and is withdrawn if something else ended it.

// arrange puts new messages into one group, and each redelivered message into one of its own. In order, a message stays behind the
// earlier ones of its key.
func arrange(round []*delivery, ordered bool) (groups [][]*delivery) {
	for len(round) > 0 {
		var first, later []*delivery
		var alone [][]*delivery
		blocked, waiting := map[keyOf]bool{}, map[keyOf]bool{} // for new messages, and for all
		for _, d := range round {
			key, ok := d.key()
			ok = ok && ordered
			switch {
			case ok && waiting[key], ok && blocked[key] && d.Deliveries <= 1:
				later, waiting[key] = append(later, d), true
			case d.Deliveries > 1:
				alone, blocked[key] = append(alone, []*delivery{d}), true
			default:
				first = append(first, d)
			}
		}
		if len(first) > 0 {
			groups = append(groups, first)
		}
		groups, round = append(groups, alone...), later
	}
	return groups
}

// announce counts an attempt at a redelivered message. If another consumer has the message for longer than patience, that is
// the error: an attempt would wait for it as well.
func (r *registry) announce(ctx context.Context, group []*delivery, patience time.Duration) error {
	d := group[0]
	if d.Deliveries <= 1 || d.announced {
		return nil
	}
	announce := store.AnnounceMessage{FailedMessage: r.message(d, d.ID)}
	if err := r.write(ctx, patience, &announce); err != nil && judgeDatabase(ctx, err) != again {
		return err
	}
	d.announced = announce.Announced
	return nil
}

// withdrawLimit bounds how long a call tries to withdraw announcements. One that it cannot withdraw counts as an attempt.
const withdrawLimit = 5 * time.Second

// withdraw takes back the announcements of messages that something else kept from being handled.
func (r *registry) withdraw(ctx context.Context, group []*delivery) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	for _, d := range group {
		if !d.announced || d.state != putOff {
			continue
		}
		withdraw := store.WithdrawMessage{Consumer: r.consumer, Source: d.Source, ID: d.ID}
		if insist(bounded, func(ctx context.Context) error { return r.engine.Query(ctx, withdraw) }) == nil {
			d.announced = false
		}
	}
}

// turns has room for one message whose last attempt has no recorded end. If such a message kills the process, no other one of
// them is under way in it and has to pay for that.
var turns = make(chan struct{}, 1)

// turn waits for the turn of such a message, and returns how to end it.
func turn(ctx context.Context, patience time.Duration) (over func(), err error) {
	over = func() { <-turns }
	select {
	case turns <- struct{}{}:
		return over, nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case turns <- struct{}{}:
		return over, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, ErrSuspected
	}
}
