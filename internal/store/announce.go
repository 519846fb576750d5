package store

import (
	"time"

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
	trip.Add(enterMessages, m.consumer, m.hashes, microseconds(e.Retention), m.sources, m.ids, array(e.Keys))
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
	trip.Add(announceMessages, boolean(a.Alone), microseconds(a.Retention), m.sources, m.ids, m.consumer, m.hashes)
}

// Read reads the answer.
func (a *AnnounceMessages) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		a.Announced = append(a.Announced, MessageID{row.Text(), row.Text()})
	})
}

// WithdrawMessages takes back what was announced: nobody is to blame for how it ended.
type WithdrawMessages struct {
	Messages *Messages
	Alone    bool // as they were announced
}

// Queue adds the statement.
func (w WithdrawMessages) Queue(trip *roundtrip.Trip) {
	m := w.Messages
	trip.Add(withdrawMessages, boolean(w.Alone), m.sources, m.ids, m.consumer)
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
	trip.Add(failingMessages, array(f.Sources), array(f.Keys), []byte(f.Consumer))
}

// Read reads the answer.
func (f *FailingMessages) Read(trip *roundtrip.Trip) {
	trip.Rows(func(row *roundtrip.Row) {
		var m FailingMessage
		m.Source, m.Key, m.ID = row.Text(), row.Text(), row.Text()
		m.Pause, m.Since = time.Duration(row.Int())*time.Microsecond, row.Time()
		f.Failing = append(f.Failing, m)
	})
}
