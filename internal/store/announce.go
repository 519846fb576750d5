package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// AnnounceMessage counts an attempt at a message before it begins.
type AnnounceMessage struct {
	FailedMessage

	Announced bool // false: the message is handled, dead or not due
}

// Queue adds the statement.
func (a *AnnounceMessage) Queue(trip *roundtrip.Trip) {
	q := db.AnnounceMessage{Consumer: a.Consumer, Source: a.Source, ID: a.ID, Hash: a.Hash[:], Retention: a.Retention, Key: a.Key}
	q.Queue(trip)
}

// Read reads the answer.
func (a *AnnounceMessage) Read(trip *roundtrip.Trip) {
	var q db.AnnounceMessage
	q.Read(trip)
	a.Announced = q.Found
}

// FailingMessages asks which messages of some keys are to be tried again.
type FailingMessages struct {
	Consumer      string
	Sources, Keys []string

	Failing []FailingMessage // those that have failed first come first
}

// FailingMessage is a message that is to be tried again.
type FailingMessage struct {
	MessageID
	Key   string
	Pause time.Duration // until then
	Since time.Time
}

// Queue adds the statement.
func (f *FailingMessages) Queue(trip *roundtrip.Trip) {
	q := db.FailingMessages{Sources: array(f.Sources), Keys: array(f.Keys), Consumer: f.Consumer}
	q.Queue(trip)
}

// Read reads the answer.
func (f *FailingMessages) Read(trip *roundtrip.Trip) {
	var q db.FailingMessages
	q.Each(trip, func(row *db.FailingMessagesRow) {
		f.Failing = append(f.Failing, FailingMessage{
			MessageID: MessageID{row.Source, row.ID}, Key: row.Key, Pause: time.Duration(row.Remaining) * time.Microsecond, Since: row.Since,
		})
	})
}
