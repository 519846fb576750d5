package inbox

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/store"
)

// delivery is one message of a call, on its way to its outcome.
type delivery struct {
	Message
	hash    [32]byte
	twins   []int // where in the call the message is, first of all itself
	state   state
	notice  notice
	since   time.Time // when it was claimed last, by the database's clock
	outcome Outcome   // once it is settled

	attempts  int // that have failed in earlier deliveries
	hindered  int // that something else has hindered
	alone     int // and such that it made alone, and that have not told how they ended
	suspicion int // that it kills its process, at the beginning of the call
}

func (d *delivery) id() store.MessageID { return store.MessageID{Source: d.Source, ID: d.ID} }

// keyOf is what messages of one order have in common.
type keyOf struct{ source, key string }

// key returns what a delivery has in common with those that it has to keep the order with.
func (d *delivery) key() (keyOf, bool) { return keyOf{d.Source, storable(d.Key)}, d.Key != "" }

// isBehind reports whether one of the others has its key.
func (d *delivery) isBehind(others []*delivery) bool {
	key, ok := d.key()
	return ok && slices.ContainsFunc(others, func(o *delivery) bool {
		other, ok := o.key()
		return ok && other == key
	})
}

func (d *delivery) isSettled() bool { return d.state >= settled }

// reopen begins another attempt.
func (d *delivery) reopen() {
	if d.state == claimed {
		d.state = untried
	}
}

func (d *delivery) claim(at time.Time) { d.state, d.since = claimed, at }

func (d *delivery) settle(o Outcome) { d.outcome, d.state = o, settled }

// postpone settles a delivery that is to come again, after a pause.
func (d *delivery) postpone(pause time.Duration, err error) {
	d.settle(Outcome{State: Retry, RetryAt: time.Now().Add(pause), Err: err})
}

// putOff postpones a delivery through no fault of its own.
func (d *delivery) putOff(pause time.Duration, err error) { d.putOffUntil(time.Now().Add(pause), err) }

func (d *delivery) putOffUntil(at time.Time, err error) {
	d.outcome, d.state = Outcome{State: Retry, RetryAt: at, Err: err}, putOff
}

// unfinished returns how many earlier attempts, that it made alone, have not told how they ended.
func (d *delivery) unfinished() int {
	if d.notice == byItself {
		return d.alone - 1
	}
	return d.alone
}

// learn settles what is known of the message, unless it is to be tried again, or is not the one that is known.
func (d *delivery) learn(k *store.KnownMessage) (due bool, mismatch error) {
	d.attempts, d.alone, d.hindered = k.Attempts, k.Alone, k.Hindered
	switch {
	case !k.SameHash:
		return false, &MismatchError{Source: d.Source, Message: d.ID, Since: k.Since}
	case k.State == store.MessageHandled && d.state == unclear && k.Since.Equal(d.since):
		d.settle(Outcome{State: Done})
	case k.State == store.MessageHandled:
		d.settle(Outcome{State: Duplicate})
	case k.State == store.MessageDead:
		d.settle(Outcome{State: Dead, Err: ErrDead})
	case k.Pause > 0:
		d.postpone(k.Pause, ErrWaiting)
	default:
		return true, nil
	}
	return false, nil
}

// unsettled returns the deliveries that have no outcome yet.
func unsettled(group []*delivery) []*delivery {
	var open []*delivery
	for _, d := range group {
		if !d.isSettled() {
			open = append(open, d)
		}
	}
	return open
}

// rounds arranges the messages of a call. A message that is there several times is handled once. One that has the id of another
// is handled after it, in another round: then it is found out as one that comes later would be. In order, what is behind it in its
// key is in no earlier round.
func rounds(messages []Message, ordered bool) [][]*delivery {
	type payload struct {
		id   store.MessageID
		hash [32]byte
	}
	var all [][]*delivery
	seen := make(map[payload]*delivery, len(messages))
	free := make(map[store.MessageID]int, len(messages)) // the first round behind those of the id
	latest := map[keyOf]int{}
	for i, m := range messages {
		id, hash := store.MessageID{Source: m.Source, ID: m.ID}, sha256.Sum256(m.Payload)
		if d := seen[payload{id, hash}]; d != nil {
			d.twins = append(d.twins, i)
			d.Deliveries = max(d.Deliveries, m.Deliveries)
			continue
		}
		d := &delivery{Message: m, hash: hash, twins: []int{i}}
		seen[payload{id, hash}] = d
		round := free[id]
		if key, ok := d.key(); ok && ordered {
			round = max(round, latest[key])
			latest[key] = round
		}
		free[id] = round + 1
		if round == len(all) {
			all = append(all, nil)
		}
		all[round] = append(all[round], d)
	}
	return all
}

// tell writes the outcome where the message was in the call. What is done once is a duplicate the other times.
func (d *delivery) tell(outcomes []Outcome) {
	o := d.outcome
	for _, i := range d.twins {
		outcomes[i] = o
		if o.State == Done {
			o = Outcome{State: Duplicate}
		}
	}
}
