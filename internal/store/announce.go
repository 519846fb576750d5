package store

import (
	"time"

	"github.com/idem-go/idem/internal/db"
	"github.com/idem-go/idem/internal/roundtrip"
)

// EnterMessages writes down messages of which nothing is known, so that attempts at them can be announced.
type EnterMessages struct {
	Messages  *Messages
	Keys      []string // of each message
	Retention time.Duration
}

// Queue adds the statement.
func (e EnterMessages) Queue(trip *roundtrip.Trip) {
	m := e.Messages
	db.EnterMessages{Consumer: m.consumer, Hashes: m.hashes, Retention: e.Retention, Sources: m.sources, IDs: m.ids, Keys: array(e.Keys)}.Queue(trip)
}

// Read reads the answer.
func (EnterMessages) Read(trip *roundtrip.Trip) { trip.Skip() }

// AnnounceMessages says that attempts at messages are about to begin: together, or at one alone.
type AnnounceMessages struct {
	Messages  *Messages
	Retention time.Duration
	Alone     bool

	Announced []MessageID // without those that are handled, dead or not due
}

// Queue adds the statement.
func (a *AnnounceMessages) Queue(trip *roundtrip.Trip) {
	m := a.Messages
	q := db.AnnounceMessages{Alone: a.Alone, Retention: a.Retention, Sources: m.sources, IDs: m.ids, Consumer: m.consumer, Hashes: m.hashes}
	q.Queue(trip)
}

// Read reads the answer.
func (a *AnnounceMessages) Read(trip *roundtrip.Trip) {
	var q db.AnnounceMessages
	q.Each(trip, func(row *db.AnnounceMessagesRow) {
		a.Announced = append(a.Announced, MessageID{row.Source, row.ID})
	})
}

// WithdrawMessages takes back what was announced: no message is to blame for how it ended.
type WithdrawMessages struct {
	Messages *Messages
	Alone    bool // as they were announced
}

// Queue adds the statement.
func (w WithdrawMessages) Queue(trip *roundtrip.Trip) {
	m := w.Messages
	db.WithdrawMessages{Alone: w.Alone, Sources: m.sources, IDs: m.ids, Consumer: m.consumer}.Queue(trip)
}

// Read reads the answer.
func (WithdrawMessages) Read(trip *roundtrip.Trip) { trip.Skip() }

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
