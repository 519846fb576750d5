package outbox

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/store"
	"github.com/idem-go/idem/internal/txn"
)

// outcome is what became of messages that were read.
type outcome struct {
	published []int64 // by their places
	behind    []int64 // one of their key that has failed
	failed    []failure
	left      int64 // the first place that was not dealt with, 0 if there is none
	err       error // that blames none
	hung      *call
}

// failure is an attempt that has failed.
type failure struct {
	message  store.Queued
	err      error
	attempts int
	pause    time.Duration
	bury     *store.BuryUnpublished // if it is a dead letter
}

// fail notes that a message has failed. One that cannot be sealed is not made a dead letter: it stays where it is.
func (o *outcome) fail(c *RelayConfig, m *store.Queued, err error) failure {
	f := failure{message: *m, err: err, attempts: m.Attempts + 1}
	f.pause = pauseAfter(c, f.attempts)
	if f.attempts >= c.MaxAttempts {
		var sealErr error
		if f.bury, sealErr = f.letterFor(c); sealErr != nil {
			f.bury, f.pause, f.err = nil, c.MaxPause, errors.Join(err, sealErr)
			c.Logger.Error("outbox: a dead letter cannot be sealed, its message is tried again", "message", m.ID, "error", sealErr)
		}
	}
	o.failed = append(o.failed, f)
	return f
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

// requests writes it down.
func (o *outcome) requests(c *RelayConfig) []txn.Request {
	var requests []txn.Request
	switch {
	case len(o.published) == 0:
	case c.Retention > 0:
		requests = append(requests, store.KeepPublished{Seqs: o.published, Retention: c.Retention, Whole: c.Sealer == nil})
	default:
		requests = append(requests, store.DeletePublished{Seqs: o.published})
	}
	var blame store.BlameMessages
	for i := range o.failed {
		f := &o.failed[i]
		if f.bury != nil {
			requests = append(requests, f.bury)
			continue
		}
		blame.Seqs, blame.Pauses = append(blame.Seqs, f.message.Seq), append(blame.Pauses, f.pause)
		blame.Classes = append(blame.Classes, deadletter.ClassOf(f.err))
		blame.Reasons = append(blame.Reasons, deadletter.ReasonOf(f.err))
	}
	if len(blame.Seqs) > 0 {
		requests = append(requests, blame)
	}
	if len(o.behind) > 0 {
		requests = append(requests, store.HoldMessages{Seqs: o.behind})
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
