package outbox

import (
	"errors"
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/deadletter"
	"github.com/idem-go/idem/internal/panics"
	"github.com/idem-go/idem/internal/txn"
)

// pendingWrites are the outcomes of messages that the next transaction stores.
type pendingWrites struct {
	published []int64   // positions of published messages
	held      []int64   // positions of messages to mark as held, because they wait for an earlier one of their key
	failed    []failure // messages that wait for a retry
	dead      []failure // dead letters
}

func (p *pendingWrites) size() int {
	return len(p.published) + len(p.held) + len(p.failed) + len(p.dead)
}

// failure is a failed attempt of a message, or a postponement by RetryLater.
type failure struct {
	message  db.Queued
	err      error
	attempts int
	count    int // 1 for a failed attempt, or 0 for a postponement
	due      time.Time
	letter   *db.BuryUnpublished // the dead letter to store, or nil if the message is retried
}

// requests returns the statements that store p.
func (p *pendingWrites) requests(c *RelayConfig, now time.Time) []txn.Request {
	var requests []txn.Request
	switch {
	case len(p.published) == 0:
	case c.Retention > 0:
		requests = append(requests, db.KeepPublished{Seqs: p.published, Retention: c.Retention, Whole: c.Sealer == nil})
	default:
		requests = append(requests, db.DeletePublished{Seqs: p.published})
	}
	for i := range p.dead {
		requests = append(requests, p.dead[i].letter)
	}
	if len(p.held) > 0 {
		requests = append(requests, db.HoldMessages{Seqs: p.held})
	}
	if len(p.failed) > 0 {
		var fail db.BlameMessages
		for i := range p.failed {
			f := &p.failed[i]
			fail.Seqs, fail.Counts = append(fail.Seqs, f.message.Seq), append(fail.Counts, f.count)
			fail.Pauses = append(fail.Pauses, max(f.due.Sub(now), 0))
			fail.Classes = append(fail.Classes, deadletter.ClassOf(f.err))
			fail.Reasons = append(fail.Reasons, deadletter.ReasonOf(f.err))
		}
		requests = append(requests, fail)
	}
	return requests
}

// sealLetter sets f.letter to the dead letter of f, sealed if there is a Sealer. It fails if the
// Sealer fails or panics.
func (c *RelayConfig) sealLetter(f *failure) error {
	err := panics.Try(func() error {
		headers, err := db.WriteHeaders(f.message.Headers)
		if err != nil {
			return err
		}
		contents := db.Contents{Payload: f.message.Payload, Headers: headers}
		if c.Sealer != nil {
			name := db.LetterName{Side: deadletter.Outbox, Source: f.message.Topic, ID: f.message.ID}
			if contents, err = contents.Seal(c.Sealer, name); err != nil {
				return err
			}
		}
		f.letter = &db.BuryUnpublished{
			Seq: f.message.Seq, Contents: contents, Attempts: f.attempts,
			Class: deadletter.ClassOf(f.err), Reason: deadletter.ReasonOf(f.err),
		}
		return nil
	})
	if err == nil {
		return nil
	}
	panics.Log(c.Logger, "outbox: the Sealer", err)
	c.Logger.Error("outbox: cannot seal a dead letter; the message is retried", "message", f.message.ID, "error", err)
	return errors.Join(f.err, err)
}

// deadLetter returns the dead letter that OnDead receives, with unencrypted contents.
func (f *failure) deadLetter() DeadLetter {
	return DeadLetter{
		Message: messageOf(&f.message),
		Class:   f.letter.Class, Reason: f.letter.Reason, Attempts: f.attempts, SealedBy: f.letter.Contents.SealedBy,
		AddedAt: f.message.CreatedAt, DiedAt: time.Now(),
	}
}

func messageOf(m *db.Queued) Message {
	return Message{ID: m.ID, Topic: m.Topic, Key: m.Key, Type: m.Type, Payload: m.Payload, Headers: m.Headers}
}
