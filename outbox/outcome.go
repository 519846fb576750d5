package outbox

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/guard"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// outcome is the outcome of messages that were read.
type outcome struct {
	published []int64 // by their places
	behind    []behind
	failed    []failure
	gone      []store.HeldKey // keys whose first message was held back, and is published
	left      int64           // the first place of what was not dealt with and is not held back, 0 if there is none
	isLeft    bool            // something was not dealt with
	turnOver  bool            // because others have to have their turn
	leftKeys  []store.HeldKey // then: keys of what is left
	err       error           // that blames none
	rest      time.Duration   // for how long the destination asks to be left alone
	hung      *call
}

// behind is a message of which one of its key, that has failed, is in front.
type behind struct {
	place int64
	key   store.HeldKey
}

// For how long a destination is left alone, if it asks for it and if it does not.
const (
	maxRest     = time.Hour
	longestRest = 30 * time.Second
)

// away notes that a destination is away, and returns an error that says so beside another one.
func (o *outcome) away(err, other error) error {
	if away, ok := errors.AsType[*AwayError](err); ok {
		o.rest = max(o.rest, min(away.RetryAfter, maxRest))
	}
	if other != nil {
		return other
	}
	return err
}

func isAway(err error) bool {
	_, is := errors.AsType[*AwayError](err)
	return is
}

// notAway is an error without what says that a destination is away, because that is not so.
func notAway(err error) error {
	if away, ok := errors.AsType[*AwayError](err); ok && away.Err != nil {
		return away.Err
	}
	return err
}

// isAnswered reports whether the destination was there: a message was published or named.
func (o *outcome) isAnswered() bool {
	return len(o.published) > 0 || slices.ContainsFunc(o.failed, func(f failure) bool { return f.alone == nil })
}

// merge adds what of the outcome of other messages is to be written down at once: those that were published, and dead letters.
func (o *outcome) merge(other *outcome) {
	o.published = append(o.published, other.published...)
	for i := range other.failed {
		if f := &other.failed[i]; f.bury != nil {
			o.failed = append(o.failed, *f)
		}
	}
}

// failure is an attempt that has failed.
type failure struct {
	message  store.Queued
	err      error
	attempts int
	count    int // 0 if its destination is away, or later
	pause    time.Duration
	later    bool                   // its Publisher says when
	alone    *lone                  // it was not named: it was found out by publishing it alone
	bury     *store.BuryUnpublished // if it is a dead letter
}

// fail notes that a message has failed, or that its destination is away.
func (o *outcome) fail(c *RelayConfig, m *store.Queued, err error) *failure {
	f := failure{message: *m, err: err, attempts: m.Attempts, pause: c.MinPause}
	away, isAway := errors.AsType[*AwayError](err)
	later, isLater := errors.AsType[*LaterError](err)
	switch {
	case isLater:
		f.later, f.pause = true, min(max(f.pause, later.After), max(maxRest, c.MinPause))
	case isAway:
		f.pause = min(max(f.pause, away.RetryAfter), max(maxRest, c.MinPause))
	default:
		f.count = 1
		f.attempts++
		f.pause = pauseAfter(c, f.attempts)
	}
	if f.count > 0 && f.attempts >= c.MaxAttempts {
		f.die(c)
	}
	o.failed = append(o.failed, f)
	return &o.failed[len(o.failed)-1]
}

// giveUp makes a dead letter of a message whose destination has been away for too long. It reports whether it did.
func (o *outcome) giveUp(c *RelayConfig, m *store.Queued) bool {
	f := failure{message: *m, err: &AwayError{Err: notAway(o.err)}, attempts: m.Attempts}
	f.die(c)
	if f.bury != nil {
		o.failed = append(o.failed, f)
	}
	return f.bury != nil
}

// die makes a dead letter of a message. One that cannot be sealed stays where it is.
func (f *failure) die(c *RelayConfig) {
	sealErr := guard.Call(func() (err error) {
		f.bury, err = f.letterFor(c)
		return err
	})
	if sealErr == nil {
		return
	}
	guard.Log(c.Logger, "outbox: the Sealer", sealErr)
	c.Logger.Error("outbox: a dead letter cannot be sealed, its message is tried again", "message", f.message.ID, "error", sealErr)
	f.bury, f.pause, f.err = nil, c.MaxPause, errors.Join(f.err, sealErr)
}

// pauseAfter doubles from one attempt to the next. Its upper quarter is at random.
func pauseAfter(c *RelayConfig, attempts int) time.Duration {
	pause := c.MinPause
	for i := 1; i < attempts && pause < c.MaxPause; i++ {
		pause *= 2
	}
	pause = min(pause, c.MaxPause)
	return max(pause-rand.N(pause/4+1), c.MinPause)
}

// requests writes down which messages were published, and which are dead letters. Those that are held back are unwritten at first.
func (o *outcome) requests(c *RelayConfig) []txn.Request {
	var requests []txn.Request
	switch {
	case len(o.published) == 0:
	case c.Retention > 0:
		requests = append(requests, store.KeepPublished{Seqs: o.published, Retention: c.Retention, Whole: c.Sealer == nil})
	default:
		requests = append(requests, store.DeletePublished{Seqs: o.published})
	}
	for i := range o.failed {
		requests = append(requests, o.failed[i].bury)
	}
	return requests
}

func (f *failure) letterFor(c *RelayConfig) (*store.BuryUnpublished, error) {
	headers, err := store.WriteHeaders(f.message.Headers)
	if err != nil {
		return nil, err
	}
	contents := store.Contents{Payload: f.message.Payload, Headers: headers}
	name := store.LetterName{Side: deadletter.Outbox, Source: f.message.Topic, ID: f.message.ID}
	if c.Sealer != nil {
		if contents, err = contents.Seal(c.Sealer, name); err != nil {
			return nil, err
		}
	}
	return &store.BuryUnpublished{Seq: f.message.Seq, Contents: contents, Class: deadletter.ClassOf(f.err),
		Reason: deadletter.ReasonOf(f.err), Attempts: f.attempts}, nil
}

// letter is the dead letter of a failure.
func (f *failure) letter() DeadLetter {
	m := &f.message
	return DeadLetter{
		Message: Message{ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers},
		Class:   f.bury.Class, Reason: f.bury.Reason, Attempts: f.attempts, SealedBy: f.bury.Contents.SealedBy,
		AddedAt: m.CreatedAt, DiedAt: time.Now(),
	}
}
