package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// arrange divides a round into groups. Each redelivered message gets a group of its own, so that
// its attempt can be counted in advance. All new messages share one group. If ordered is true,
// there may be more groups, because the groups keep the order of each key.
func arrange(round []*delivery, ordered bool) (groups [][]*delivery) {
	for len(round) > 0 {
		var first, later []*delivery
		var alone [][]*delivery
		// A new message goes into a later group than a redelivered message of its key. All messages of
		// the key after that message go into a later group as well.
		redelivered, waiting := map[orderKey]bool{}, map[orderKey]bool{}
		for _, d := range round {
			key, ok := d.orderKey()
			ok = ok && ordered
			switch {
			case ok && waiting[key], ok && redelivered[key] && d.Deliveries <= 1:
				later, waiting[key] = append(later, d), true
			case d.Deliveries > 1:
				alone, redelivered[key] = append(alone, []*delivery{d}), true
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

// retryBehindStored settles messages with the outcome Retry if they have to wait for a failing
// message of an earlier call. The list all contains the messages of this call, in their order.
func retryBehindStored(ctx context.Context, c *consumer, all []*delivery) error {
	query := db.FailingMessages{Consumer: c.name}
	byKey := map[orderKey][]*delivery{}
	for _, d := range all {
		key, ok := d.orderKey()
		if !ok {
			continue
		}
		if byKey[key] == nil {
			query.Sources, query.Keys = append(query.Sources, key.source), append(query.Keys, key.key)
		}
		byKey[key] = append(byKey[key], d)
	}
	if len(query.Keys) == 0 {
		return nil
	}
	if err := c.engine.Query(ctx, &query); err != nil {
		return err
	}
	failing := map[orderKey][]db.FailingMessage{}
	for _, f := range query.Rows {
		key := orderKey{f.Source, f.Key}
		failing[key] = append(failing[key], f)
	}
	delays := map[*delivery]time.Duration{}
	var waiting []*delivery
	for key, rows := range failing {
		for i, d := range byKey[key] {
			if left, blocked := blockedBy(d, byKey[key][:i], byKey[key][i+1:], rows); blocked {
				delays[d] = max(left, c.minBackoff/8, time.Millisecond)
				waiting = append(waiting, d)
			}
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	// A message that is handled or dead does not wait. The broker may deliver it before the failing
	// messages of its key, and deliver these only after it is acknowledged.
	rows, err := c.stored(ctx, waiting)
	over := map[db.MessageID]bool{}
	for i := range rows {
		over[rows[i].MessageID] = rows[i].State != db.MessageFailing
	}
	for _, d := range waiting {
		if !over[d.id()] {
			d.retryAfter(delays[d], ErrBehind)
		}
	}
	return err
}

// blockedBy reports whether d has to wait for a failing message of its key, and returns how long it
// takes until the next attempt at that message is due. The list failing is sorted by the time of
// the first failure. If d has failed itself, it waits only for messages that failed before d first
// failed. d does not wait for a message that follows d in this call, or for an earlier message that
// this call tries now.
func blockedBy(d *delivery, earlier, later []*delivery, failing []db.FailingMessage) (left time.Duration, blocked bool) {
	own := slices.IndexFunc(failing, func(f db.FailingMessage) bool { return f.MessageID == d.id() })
	for _, f := range failing {
		if own >= 0 && !f.Since.Before(failing[own].Since) {
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

// postponeBehind postpones messages that follow a message of their key with the outcome Retry in
// this call. The list all contains the messages of this call, in their order.
func postponeBehind(all []*delivery) {
	blocking := map[orderKey]*delivery{}
	for _, d := range all {
		key, ok := d.orderKey()
		switch before := blocking[key]; {
		case !ok:
		case d.isSettled() && d.outcome.State == Retry && before == nil:
			blocking[key] = d
		case !d.isSettled() && before != nil:
			d.postpone(before.outcome.RetryAt, ErrBehind)
		}
	}
}
