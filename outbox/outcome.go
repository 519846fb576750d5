package outbox

import (
	"errors"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/panics"
	"github.com/idem-go/idem/internal/txn"
)

// outcome is what is to be written down.
type outcome struct {
	published []int64   // by position
	held      []int64   // messages behind one of their key that waits
	blamed    []failure // messages that wait
	buried    []failure // dead letters
}

func (o *outcome) size() int { return len(o.published) + len(o.held) + len(o.blamed) + len(o.buried) }

// failure is an attempt that has failed, or was postponed.
type failure struct {
	message  db.Queued
	err      error
	attempts int
	count    int // 0 if it was postponed
	due      time.Time
	letter   *db.BuryUnpublished // if it is a dead letter
}

// requests writes an outcome down.
func (o *outcome) requests(c *RelayConfig, now time.Time) []txn.Request {
	var requests []txn.Request
	switch {
	case len(o.published) == 0:
	case c.Retention > 0:
		requests = append(requests, db.KeepPublished{Seqs: o.published, Retention: c.Retention, Whole: c.Sealer == nil})
	default:
		requests = append(requests, db.DeletePublished{Seqs: o.published})
	}
	for i := range o.buried {
		requests = append(requests, o.buried[i].letter)
	}
	if len(o.held) > 0 {
		requests = append(requests, db.HoldMessages{Seqs: o.held})
	}
	if len(o.blamed) > 0 {
		var blame db.BlameMessages
		for i := range o.blamed {
			f := &o.blamed[i]
			blame.Seqs, blame.Pauses = append(blame.Seqs, f.message.Seq), append(blame.Pauses, max(f.due.Sub(now), 0))
			blame.Counts = append(blame.Counts, f.count)
			blame.Classes, blame.Reasons = append(blame.Classes, deadletter.ClassOf(f.err)), append(blame.Reasons, deadletter.ReasonOf(f.err))
		}
		requests = append(requests, blame)
	}
	return requests
}

// sealed makes the dead letter of a failure.
func (c *RelayConfig) sealed(f *failure) error {
	err := panics.Try(func() (err error) {
		f.letter, err = c.letterOf(f)
		return err
	})
	if err == nil {
		return nil
	}
	panics.Log(c.Logger, "outbox: the Sealer", err)
	c.Logger.Error("outbox: a dead letter cannot be sealed, its message is tried again", "message", f.message.ID, "error", err)
	return errors.Join(f.err, err)
}

func (c *RelayConfig) letterOf(f *failure) (*db.BuryUnpublished, error) {
	headers, err := db.WriteHeaders(f.message.Headers)
	if err != nil {
		return nil, err
	}
	contents := db.Contents{Payload: f.message.Payload, Headers: headers}
	name := db.LetterName{Side: deadletter.Outbox, Source: f.message.Topic, ID: f.message.ID}
	if c.Sealer != nil {
		if contents, err = contents.Seal(c.Sealer, name); err != nil {
			return nil, err
		}
	}
	return &db.BuryUnpublished{Seq: f.message.Seq, Contents: contents, Class: deadletter.ClassOf(f.err),
		Reason: deadletter.ReasonOf(f.err), Attempts: f.attempts}, nil
}

// dead returns the dead letter as OnDead is told of it.
func (f *failure) dead() DeadLetter {
	return DeadLetter{
		Message: messageOf(&f.message),
		Class:   f.letter.Class, Reason: f.letter.Reason, Attempts: f.attempts, SealedBy: f.letter.Contents.SealedBy,
		AddedAt: f.message.CreatedAt, DiedAt: time.Now(),
	}
}

func messageOf(m *db.Queued) Message {
	return Message{ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
}
