package inbox

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// A message that kills its process leaves nothing behind but that the broker delivers it again. So an attempt at a message that
// was delivered before is announced, in a transaction of its own: one for a group. A message whose attempt was announced and has
// not told how it ended is a suspect. It is tried alone, behind the others, and announced when its turn comes, so that none is
// suspected for long that was only there.

// suspects arranges a round: the messages that nobody suspects are one group, and each suspect is one. In order, a suspect stays
// where it is.
func (r *registry) suspects(ctx context.Context, round []*delivery) ([][]*delivery, error) {
	var again []*delivery
	for _, d := range round {
		if d.Deliveries > 1 && !d.settled {
			again = append(again, d)
		}
	}
	if len(again) == 0 {
		return [][]*delivery{round}, nil
	}
	if err := r.recall(ctx, again); err != nil {
		return nil, err
	}
	var groups [][]*delivery
	var alone []*delivery
	var calm []*delivery
	for _, d := range round {
		switch {
		case d.begun == 0:
			calm = append(calm, d)
		case r.settings.ordered:
			groups = append(groups, calm, []*delivery{d})
			calm = nil
		default:
			alone = append(alone, d)
		}
	}
	groups = append(groups, calm)
	slices.SortStableFunc(alone, func(a, b *delivery) int { return cmp.Compare(a.begun, b.begun) })
	for _, d := range alone {
		groups = append(groups, []*delivery{d})
	}
	return groups, nil
}

// recall reads what is known of messages that were delivered before. One that was handled is not announced.
func (r *registry) recall(ctx context.Context, group []*delivery) error {
	byID, messages := r.messages(group)
	load := store.LoadMessages{Messages: messages}
	if err := r.engine.Query(ctx, &load); err != nil {
		return err
	}
	for _, d := range group {
		d.toAnnounce = true
	}
	for i := range load.Known {
		k := &load.Known[i]
		d := byID[k.MessageID]
		d.toAnnounce = k.State == store.MessageFailing && k.Pause <= 0 && k.SameHash
		if d.toAnnounce {
			d.begun = k.Begun
		}
	}
	return nil
}

// announce says that attempts at the messages of a group are about to begin, where that is wanted. If somebody else has one of
// them in hand, it is not said.
func (r *registry) announce(ctx context.Context, group []*delivery) error {
	var wanted []*delivery
	var keys []string
	for _, d := range group {
		if d.toAnnounce && !d.announced && d.begun < r.settings.maxAttempts {
			wanted = append(wanted, d)
			keys = append(keys, storable(d.Key))
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	byID, messages := r.messages(wanted)
	announce := store.AnnounceMessages{Messages: messages, Keys: keys, Retention: r.settings.retention}
	err := r.write(ctx, &announce)
	if err != nil {
		if judgeDatabase(ctx, err) == stopped {
			return err
		}
		return nil
	}
	for _, a := range announce.Announced {
		d := byID[a.MessageID]
		d.announced, d.begun = true, a.Begun
	}
	return nil
}

// withdrawLimit is how long it may take to withdraw. If it does not work, the message is a suspect for as long as it takes to try it
// once more.
const withdrawLimit = time.Second

// withdraw takes back what was announced of messages that have not been handled, through nobody's fault.
func (r *registry) withdraw(ctx context.Context, group []*delivery) {
	var announced []*delivery
	for _, d := range group {
		if d.announced && d.outcome.State == Retry && d.blameless {
			announced = append(announced, d)
		}
	}
	if len(announced) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	_, messages := r.messages(announced)
	_ = r.engine.Query(bounded, store.WithdrawMessages{Messages: messages})
}

func (r *registry) messages(group []*delivery) (map[store.MessageID]*delivery, *store.Messages) {
	byID := make(map[store.MessageID]*delivery, len(group))
	for _, d := range group {
		byID[d.id()] = d
	}
	return byID, store.NewMessages(r.consumer, len(group), func(i int) (store.MessageID, [32]byte) { return group[i].id(), group[i].hash })
}
