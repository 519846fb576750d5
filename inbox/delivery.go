package inbox

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// State is the outcome of a message.
type State string

const (
	// Done: this delivery had its effect, which is committed. Acknowledge it.
	Done State = "done"
	// Duplicate: an earlier delivery had its effect. Acknowledge this one.
	Duplicate State = "duplicate"
	// Retry: the message has no effect yet. Deliver it again, at RetryAt or later.
	Retry State = "retry"
	// Dead: the message is a dead letter. It has failed as often as it may, or no attempt would help, because its id belongs to
	// another payload or is invalid. Acknowledge it.
	Dead State = "dead"
)

// Outcome is the outcome of one message. It is right also if an error is returned beside it.
type Outcome struct {
	State   State
	RetryAt time.Time // of Retry
	Err     error     // why, of Retry and Dead
}

// state is how far a delivery is on its way to its outcome.
type state int

const (
	untried state = iota // no attempt has claimed the message
	claimed              // the current attempt has claimed it, or the last one, which has failed
	unclear              // the outcome of the last attempt's COMMIT is unknown
	settled              // it has its outcome
	putOff               // its outcome is Retry, for another reason than a failure of its own
)

// delivery is one message of a call, on its way to its outcome.
type delivery struct {
	Message
	hash    [32]byte
	twins   []int // the places of the message in the call, the first one is its own
	state   state
	since   time.Time // when it was claimed last, by the database's clock
	outcome Outcome   // once it is settled

	attempts   int  // earlier ones that have failed, or were announced and have no recorded end
	hindered   int  // earlier ones that something else has hindered
	announced  bool // the current attempt is counted already
	unfinished bool // the attempt before was announced and has no recorded end
}

func (d *delivery) id() db.MessageID { return db.MessageID{Source: d.Source, ID: d.ID} }

// keyOf is what messages that are kept in order have in common.
type keyOf struct{ source, key string }

// key returns the key of the message, if it has one.
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

// reopen prepares the delivery for another attempt.
func (d *delivery) reopen() {
	if d.state == claimed {
		d.state = untried
	}
}

func (d *delivery) claim(at time.Time) { d.state, d.since = claimed, at }

func (d *delivery) settle(o Outcome) { d.outcome, d.state = o, settled }

// postpone settles a delivery that has failed and is to come again.
func (d *delivery) postpone(pause time.Duration, err error) {
	d.settle(Outcome{State: Retry, RetryAt: time.Now().Add(pause), Err: err})
}

// putOff postpones a delivery for another reason than a failure of its own.
func (d *delivery) putOff(pause time.Duration, err error) { d.putOffUntil(time.Now().Add(pause), err) }

func (d *delivery) putOffUntil(at time.Time, err error) {
	d.outcome, d.state = Outcome{State: Retry, RetryAt: at, Err: err}, putOff
}

// learn settles the delivery by what is stored about its message. It reports whether the message is due for an attempt, and
// returns an error if the id belongs to another payload.
func (d *delivery) learn(k *db.KnownMessage) (due bool, mismatch error) {
	d.attempts, d.hindered = k.Attempts, k.Hindered
	if d.announced {
		d.attempts--
	}
	switch {
	case !k.SameHash:
		return false, &MismatchError{Source: d.Source, Message: d.ID, Since: k.Since}
	case k.State == db.MessageHandled && d.state == unclear && k.Since.Equal(d.since):
		d.settle(Outcome{State: Done})
	case k.State == db.MessageHandled:
		d.settle(Outcome{State: Duplicate})
	case k.State == db.MessageDead:
		d.settle(Outcome{State: Dead, Err: ErrDead})
	case k.Remaining > 0:
		d.postpone(k.Remaining, ErrWaiting)
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

// rounds divides the messages of a call into rounds, in each of which an id occurs once. A message that is in the call several
// times is handled once. One that has the id of another message is in a later round, where it is a mismatch. In order, the
// messages behind it in its key are in no earlier round.
func rounds(messages []Message, ordered bool) [][]*delivery {
	type payload struct {
		id   db.MessageID
		hash [32]byte
	}
	var all [][]*delivery
	seen := make(map[payload]*delivery, len(messages))
	free := make(map[db.MessageID]int, len(messages)) // the first round behind those of the id
	latest := map[keyOf]int{}
	for i, m := range messages {
		id, hash := db.MessageID{Source: m.Source, ID: m.ID}, sha256.Sum256(m.Payload)
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

// tell writes the outcome to each place of the message in the call. If it is Done, the other places are duplicates.
func (d *delivery) tell(outcomes []Outcome) {
	o := d.outcome
	for _, i := range d.twins {
		outcomes[i] = o
		if o.State == Done {
			o = Outcome{State: Duplicate}
		}
	}
}
