package inbox

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/db"
)

// State says what has become of a message, and so how to answer the broker.
type State string

const (
	// Done: the effect of this delivery is committed. Acknowledge the delivery.
	Done State = "done"
	// Duplicate: the effect of an earlier delivery is committed. Acknowledge this delivery as well.
	Duplicate State = "duplicate"
	// Retry: the message has had no effect yet. Have it delivered again, at RetryAt or later.
	Retry State = "retry"
	// Dead: the message is a dead letter. Its last attempt failed, or an attempt would be useless,
	// because the ID is invalid or belongs to another payload. Acknowledge the delivery.
	Dead State = "dead"
)

// Outcome is the outcome of one message. It is valid even if the call also returns an error.
type Outcome struct {
	State   State
	RetryAt time.Time // when to deliver the message again, if State is Retry
	Err     error     // the reason, if State is Retry or Dead
}

// state is the progress of a delivery towards its outcome.
type state int

const (
	untried   state = iota // no attempt has claimed the message
	claimed                // the current attempt, or a failed one, has claimed the message
	inDoubt                // the outcome of the last COMMIT is unknown
	settled                // the delivery has its outcome
	postponed              // settled as Retry without a failed attempt: an attempt counted in advance is taken back
)

// delivery is one message of a call.
type delivery struct {
	Message
	hash      [32]byte
	positions []int // indexes in the messages of the call; several if the call has the message several times
	state     state
	since     time.Time // when the message was last claimed, by the clock of the database
	outcome   Outcome   // valid once the delivery is settled

	attempts   int  // number of earlier attempts that failed, or that were counted in advance and have no recorded end
	hindered   int  // number of earlier attempts that failed but do not count, because of a lock for example
	announced  bool // the current attempt was counted in advance
	unfinished bool // the last attempt was counted in advance and has no recorded end
}

func (d *delivery) id() db.MessageID { return db.MessageID{Source: d.Source, ID: d.ID} }

// orderKey identifies messages whose order is kept: those of one source and key.
type orderKey struct{ source, key string }

func (d *delivery) orderKey() (key orderKey, ok bool) {
	return orderKey{d.Source, storedKey(d.Key)}, d.Key != ""
}

// sharesKey reports whether d has a key, and one of the other messages has the same key.
func (d *delivery) sharesKey(others []*delivery) bool {
	key, ok := d.orderKey()
	return ok && slices.ContainsFunc(others, func(o *delivery) bool {
		other, ok := o.orderKey()
		return ok && other == key
	})
}

func (d *delivery) isSettled() bool { return d.state >= settled }

func (d *delivery) claim(at time.Time) { d.state, d.since = claimed, at }

func (d *delivery) settle(o Outcome) { d.outcome, d.state = o, settled }

// retryAfter settles a delivery that failed, or whose next attempt is not due, as Retry.
func (d *delivery) retryAfter(backoff time.Duration, err error) {
	d.settle(Outcome{State: Retry, RetryAt: time.Now().Add(backoff), Err: err})
}

// postpone settles a delivery that did not fail as Retry.
func (d *delivery) postpone(at time.Time, err error) {
	d.outcome, d.state = Outcome{State: Retry, RetryAt: at, Err: err}, postponed
}

// apply settles the delivery according to the stored row of its message. If an attempt is due,
// apply returns true and does not settle the delivery. If the ID belongs to another payload, apply
// returns an error.
func (d *delivery) apply(row *db.KnownMessage) (due bool, mismatch error) {
	d.attempts, d.hindered = row.Attempts, row.Hindered
	if d.announced { // the row counts the current attempt
		d.attempts--
	}
	switch {
	case !row.SameHash:
		return false, &MismatchError{Source: d.Source, Message: d.ID, Since: row.Since}
	case row.State == db.MessageHandled && d.state == inDoubt && row.Since.Equal(d.since):
		d.settle(Outcome{State: Done}) // the COMMIT in doubt succeeded
	case row.State == db.MessageHandled:
		d.settle(Outcome{State: Duplicate})
	case row.State == db.MessageDead:
		d.settle(Outcome{State: Dead, Err: ErrDead})
	case row.Remaining > 0:
		d.retryAfter(row.Remaining, ErrWaiting)
	default:
		return true, nil
	}
	return false, nil
}

func unsettled(group []*delivery) (open []*delivery) {
	for _, d := range group {
		if !d.isSettled() {
			open = append(open, d)
		}
	}
	return open
}

func byID(group []*delivery) map[db.MessageID]*delivery {
	byID := make(map[db.MessageID]*delivery, len(group))
	for _, d := range group {
		byID[d.id()] = d
	}
	return byID
}

// rounds divides the messages of a call into rounds. An ID occurs once in a round, because a
// transaction can claim an ID only once. Messages with the same ID and payload become one delivery.
// A message that has the ID of another payload goes into a later round, which detects the mismatch.
// If ordered is true, a message goes into no earlier round than the messages of its key that
// precede it.
func rounds(messages []Message, ordered bool) (all [][]*delivery) {
	type payload struct {
		id   db.MessageID
		hash [32]byte
	}
	seen := make(map[payload]*delivery, len(messages))
	next := make(map[db.MessageID]int, len(messages)) // the first round without this ID
	latest := map[orderKey]int{}
	for i, m := range messages {
		id, hash := db.MessageID{Source: m.Source, ID: m.ID}, sha256.Sum256(m.Payload)
		if d := seen[payload{id, hash}]; d != nil {
			d.positions = append(d.positions, i)
			d.Deliveries = max(d.Deliveries, m.Deliveries)
			continue
		}
		d := &delivery{Message: m, hash: hash, positions: []int{i}}
		seen[payload{id, hash}] = d
		round := next[id]
		if key, ok := d.orderKey(); ok && ordered {
			round = max(round, latest[key])
			latest[key] = round
		}
		next[id] = round + 1
		if round == len(all) {
			all = append(all, nil)
		}
		all[round] = append(all[round], d)
	}
	return all
}

// report writes the outcome to each position that the message has in the call. If the outcome is
// Done, all positions but the first get Duplicate.
func (d *delivery) report(outcomes []Outcome) {
	o := d.outcome
	for _, i := range d.positions {
		outcomes[i] = o
		if o.State == Done {
			o = Outcome{State: Duplicate}
		}
	}
}
