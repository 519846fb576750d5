package inbox

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// A message that kills its process leaves one trace: the broker delivers it again. So an attempt at a redelivered message is
// announced: counted in a transaction of its own before it begins. The message is tried alone, or an attempt of the next one would be
// counted as well. The count stands if the attempt fails or never ends, and is withdrawn if it ended for another reason.

// arrange puts new messages into one group, and each redelivered message into one of its own. If ordered, a message comes after the
// earlier ones of its key.
func arrange(round []*delivery, ordered bool) (groups [][]*delivery) {
	for len(round) > 0 {
		var first, later []*delivery
		var alone [][]*delivery
		blocked, waiting := map[keyOf]bool{}, map[keyOf]bool{} // keys of which new messages have to wait, and of which all have to
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

// announce counts an attempt at a redelivered message. It returns the error of the lock if another consumer has the message for longer
// than patience: an attempt would wait for it as well. After a passing error, such as a deadlock, the attempt is made uncounted.
func (r *registry) announce(ctx context.Context, group []*delivery, patience time.Duration) error {
	d := group[0]
	if d.Deliveries <= 1 || d.announced {
		return nil
	}
	announce := db.AnnounceMessage{FailedMessage: r.message(d, d.ID)}
	err := r.write(ctx, patience, &announce)
	if err != nil && judgeDatabase(ctx, err) != again {
		return err
	}
	d.announced = err == nil && announce.Found
	return nil
}

// withdrawLimit bounds how long a call tries to withdraw announcements. One that it cannot withdraw counts as an attempt.
const withdrawLimit = 5 * time.Second

// withdraw takes back the announcements of messages that are put off for another reason than a failure of their own.
func (r *registry) withdraw(ctx context.Context, group []*delivery) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	for _, d := range group {
		if !d.announced || d.state != putOff {
			continue
		}
		withdraw := db.WithdrawMessage{Consumer: r.consumer, Source: d.Source, ID: d.ID}
		if insist(bounded, func(ctx context.Context) error { return r.engine.Query(ctx, withdraw) }) == nil {
			d.announced = false
		}
	}
}

// turns is a semaphore of the process for messages whose last attempt has no recorded end. One of them is tried at a time, so that
// only its own attempt is counted if it kills the process.
var turns = make(chan struct{}, 1)

// turn acquires that semaphore, and returns how to release it. After patience the error is ErrSuspected.
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
