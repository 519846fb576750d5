package inbox

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// A message that kills its process leaves nothing behind but that the broker delivers it again. So an attempt at a message that
// was delivered before is announced, in a transaction of its own: one for a group, when its turn comes, so that none is suspected
// for long that was only there.

// groups arranges a round for who tries it, after a look at what was delivered before.
func (r *registry) groups(ctx context.Context, round []*delivery) ([][]*delivery, error) {
	var again []*delivery
	for _, d := range round {
		if d.Deliveries > 1 && !d.isSettled() {
			again = append(again, d)
		}
	}
	if len(again) == 0 {
		return [][]*delivery{round}, nil
	}
	for _, d := range again {
		d.notice = due
	}
	if err := r.know(ctx, again); err != nil {
		return nil, err
	}
	return arrange(unsettled(round), r.settings.ordered), nil
}

// know settles what is known of messages that were delivered before, and finds the suspects among the others.
func (r *registry) know(ctx context.Context, group []*delivery) error {
	byID, messages := r.messages(group)
	load := store.LoadMessages{Messages: messages}
	if err := r.engine.Query(ctx, &load); err != nil {
		return err
	}
	for i := range load.Known {
		k := &load.Known[i]
		d := byID[k.MessageID]
		d.notice = needless
		if again, _ := d.learn(k); again {
			d.notice, d.suspicion = due, suspicionOf(k)
		}
	}
	return nil
}

// announce says that attempts at the messages of a group are about to begin, where that is wanted. If another consumer has one of
// them in hand for longer than patience, that is the error, and it is not said: an attempt would wait for the same.
func (r *registry) announce(ctx context.Context, group []*delivery, patience time.Duration) error {
	alone := len(group) == 1 && group[0].suspicion > 0
	var wanted []*delivery
	var keys []string
	for _, d := range group {
		if d.notice == due && d.alone < r.settings.maxAttempts {
			wanted = append(wanted, d)
			keys = append(keys, storable(d.Key))
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	byID, messages := r.messages(wanted)
	enter := store.EnterMessages{Messages: messages, Keys: keys, Retention: r.settings.retention}
	announce := store.AnnounceMessages{Messages: messages, Retention: r.settings.retention, Alone: alone}
	if err := r.write(ctx, patience, enter, &announce); err != nil {
		if judgeDatabase(ctx, err) == again {
			return nil
		}
		return err
	}
	announced := together
	if alone {
		announced = byItself
	}
	for _, id := range announce.Announced {
		byID[id].notice = announced
	}
	return nil
}

// withdrawLimit is how long it may take to withdraw. If it does not work, the message is a suspect for as long as it takes to try it
// once more.
const withdrawLimit = time.Second

// withdraw takes back what was announced of messages that have not been handled, through no fault of theirs.
func (r *registry) withdraw(ctx context.Context, group []*delivery) {
	for _, as := range []notice{together, byItself} {
		var announced []*delivery
		for _, d := range group {
			if d.notice == as && d.state == putOff {
				announced = append(announced, d)
			}
		}
		if len(announced) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
		_, messages := r.messages(announced)
		_ = r.engine.Query(bounded, store.WithdrawMessages{Messages: messages, Alone: as == byItself})
		cancel()
	}
}

func (r *registry) messages(group []*delivery) (map[store.MessageID]*delivery, *store.Messages) {
	byID := make(map[store.MessageID]*delivery, len(group))
	for _, d := range group {
		byID[d.id()] = d
	}
	return byID, store.NewMessages(r.consumer, len(group), func(i int) (store.MessageID, [32]byte) { return group[i].id(), group[i].hash })
}
